// SPDX-License-Identifier: Apache-2.0
// The HTTP API, as a page with a session uses it. The session belongs to this origin, port included, and to
// this tab: no other page of the host is sent it.

const V1 = "/api/v1";
const SESSION = "session";

export class Refused extends Error {
  constructor(status, text) {
    super(text);
    this.status = status;
  }
}

async function reply(method, path, body, options = {}) {
  const headers = { ...options.headers };
  const session = sessionStorage.getItem(SESSION);
  if (session) headers.Authorization = `Bearer ${session}`;
  const whole = { ...options, method, headers, credentials: "omit" };
  if (body !== undefined) whole.body = JSON.stringify(body);
  const got = await fetch(V1 + path, whole);
  if (got.ok) return got;
  const said = await got.json().catch(() => ({}));
  throw new Refused(got.status, said.error || `HTTP ${got.status}`);
}

const request = async (method, path, body) => (await reply(method, path, body)).json();

export const status = () => request("GET", "/status");
export const loss = (machine) => request("GET", `/machines/${encodeURIComponent(machine)}/loss`);
export const session = () => request("GET", "/session");
export const ask = (what, body) => request("POST", `/${what}`, body);

export async function enter(given) {
  sessionStorage.removeItem(SESSION);
  const begun = await request("POST", "/session", given);
  sessionStorage.setItem(SESSION, begun.session);
  return begun;
}

// What happens from now on: each event's data goes to the handler of its name ("message" if it has none).
// ended() is called once, unless it was closed.
export function stream(after, handlers, ended) {
  const control = new AbortController();
  const options = { headers: { Accept: "text/event-stream" }, signal: control.signal };
  read(`/events?pulse=true&after=${after}`, options, handlers).then(finish, finish);

  function finish() {
    if (!control.signal.aborted) ended();
  }

  return { close: () => control.abort() };
}

async function read(path, options, handlers) {
  const got = await reply("GET", path, undefined, options);
  const parts = got.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await parts.read();
    if (done) return;
    const events = (rest + value).split("\n\n");
    rest = events.pop();
    for (const event of events) dispatch(event, handlers);
  }
}

function dispatch(event, handlers) {
  const fields = Object.fromEntries(event.split("\n").map((line) => line.split(/: (.*)/s)));
  handlers[fields.event || "message"]?.(JSON.parse(fields.data));
}
