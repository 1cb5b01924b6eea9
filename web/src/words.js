// SPDX-License-Identifier: Apache-2.0
// Numbers and states, as people read them. The words are those of the command line.

export function spans(ranks) {
  const ends = [];
  for (const rank of ranks) {
    const last = ends[ends.length - 1];
    if (last && rank === last[1] + 1) last[1] = rank;
    else ends.push([rank, rank]);
  }
  return ends.map(([a, b]) => (a === b ? `${a}` : `${a}-${b}`)).join(",");
}

export const ms = (value) => (value == null ? "-" : `${value < 10 ? value.toFixed(1) : value.toFixed(0)} ms`);
export const number = (value) => (value == null ? "-" : Number(value.toPrecision(6)).toString());

export function size(bytes) {
  for (const [unit, name] of [[1e9, "GB"], [1e6, "MB"], [1e3, "kB"]])
    if (bytes >= unit) return `${(bytes / unit).toFixed(1)} ${name}`;
  return `${bytes} B`;
}

export function ago(seconds) {
  for (const [unit, name] of [[3600, "h"], [60, "min"]])
    if (seconds >= 2 * unit) return `${(seconds / unit).toFixed(0)} ${name}`;
  return `${seconds.toFixed(0)} s`;
}

export const clock = (at_us) => new Date(at_us / 1000).toLocaleTimeString([], { hour12: false });

// Names of at most `width` characters: without the domain that all have, then without what is in the middle.
export function shortNames(names, width) {
  const domain = names.some((name) => name.length > width) ? commonDomain(names) : "";
  const bare = (name) => (domain ? `${name.slice(0, -domain.length)}…` : name);
  return new Map(names.map((name) => [name, withoutMiddle(bare(name), width)]));
}

// The last characters in which names differ, for a cell.
export function nameEnds(names, width) {
  const domain = commonDomain(names);
  const bare = names.map((name) => (domain ? name.slice(0, -domain.length) : name));
  let same = 0;
  while (bare.length > 1 && bare[0][same] !== undefined && bare.every((name) => name[same] === bare[0][same])) same += 1;
  const prefix = (bare[0] || "").slice(0, same).replace(/\d+$/, "").length;
  return new Map(names.map((name, index) => [name, bare[index].slice(prefix).slice(-width)]));
}

function commonDomain(names) {
  if (names.length < 2) return "";
  const labels = names[0].split(".");
  const endings = labels.slice(1).map((_, index) => `.${labels.slice(index + 1).join(".")}`);
  return endings.find((ending) => names.every((name) => name.endsWith(ending))) || "";
}

function withoutMiddle(name, width) {
  if (name.length <= width) return name;
  const tail = Math.floor(width / 2);
  return `${name.slice(0, width - tail - 1)}…${name.slice(-tail)}`;
}

// What a machine is to who looks: one word, which is a colour too.
export function looks(machine) {
  if (machine.away) return "away";
  if (machine.ranks.length) return machine.cordoned ? "cordoned" : "active";
  if (machine.cordoned) return "cordoned";
  return { warm: "warm", cold: "cold", down: "cold" }[machine.state] || "warming";
}

export const isOver = (status) => status != null && status.code != null;

// away: why nothing is known of the job now, or "".
export function doing(status, away) {
  const change = status.change;
  if (isOver(status)) return status.code ? `ended, exit status ${status.code}` : "ended";
  if (away) return "no contact";
  if (!change) return status.phase;
  if (change.waits) return `waits for a machine, ${change.waits.left_s.toFixed(0)} s left`;
  return change.kind === "move" ? `running, move: ${change.stage}` : `recovering: ${change.stage}`;
}

// How the job has ended; "" while it goes on.
export function ending(status) {
  if (!isOver(status)) return "";
  const how = status.code ? `The job has ended with exit status ${status.code}.` : "The job has ended: every rank ran its script to the end.";
  const kind = status.trouble && status.trouble !== "unknown" ? ` (${status.trouble})` : "";
  return [how, `${status.ended_because}${kind}`.trim()].filter(Boolean).join("\n");
}

// A phase has one colour, in whatever incident it is.
const PHASES = ["detect", "bind", "prepare", "pause", "wait", "drain", "verdict", "boundary", "state", "switchover", "first_step"];
export const phaseColour = (name) => `p${Math.max(0, PHASES.indexOf(name))}`;

const SLOW = 1.5;

// Whether its steps take much longer than those of most.
export const isSlow = (machine, step_ms) => step_ms > 0 && machine.step_ms > SLOW * step_ms;

// Machine -> the roles of its ranks in words; "" where all ranks have one.
export function roleWords(status) {
  if (status.roles.length < 2) return () => "";
  const of = new Map(status.roles.flatMap((one) => one.ranks.map((rank) => [rank, one.role])));
  return (machine) => {
    const all = [...new Set(machine.ranks.map((rank) => of.get(rank)))].filter((role) => role !== undefined);
    return all.length ? `role ${all.join(",")}` : "";
  };
}
