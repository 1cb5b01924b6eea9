// The HTTP API, as a page with a session uses it.

const V1 = "/api/v1";

export class Refused extends Error {
  constructor(status, text) {
    super(text);
    this.status = status;
  }
}

async function request(method, path, body) {
  const options = { method, credentials: "same-origin" };
  if (body !== undefined) options.body = JSON.stringify(body);
  const reply = await fetch(V1 + path, options);
  const said = await reply.json().catch(() => ({}));
  if (!reply.ok) throw new Refused(reply.status, said.error || `HTTP ${reply.status}`);
  return said;
}

export const status = () => request("GET", "/status");
export const session = () => request("GET", "/session");
export const enter = (given) => request("POST", "/session", given);
export const leave = () => request("DELETE", "/session");
export const ask = (what, body) => request("POST", `/${what}`, body);
export const stream = (after) => new EventSource(`${V1}/events?pulse=true&after=${after}`);
