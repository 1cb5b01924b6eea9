// SPDX-License-Identifier: Apache-2.0
// Incidents: how long each phase took, why, who said where it stood, and what proves the result.

import { clock, ms, phaseColour, size, spans } from "./words.js";

const SHOWN = 30;

export function Incidents({ incidents }) {
  if (!incidents.length) return <p class="muted">Nothing has happened so far.</p>;
  return incidents.slice(-SHOWN).reverse().map((one) => <Incident key={one.number} one={one} />);
}

function Incident({ one }) {
  const phases = Object.entries(one.phases_ms);
  const whole = phases.reduce((sum, [, took]) => sum + took, 0) || 1;
  const who = `${one.machine || "a link"} → ${one.joiner || (one.outcome === "open" ? "?" : "in place")}`;
  const down = one.downtime_ms == null ? "" : `${one.kind === "move" ? "pause" : "downtime"} ${ms(one.downtime_ms)}`;
  return (
    <details class="incident" data-incident={one.number}>
      <summary>
        <span class={`word is-${one.outcome}`}>{one.outcome}</span> #{one.number} {one.kind} {who} <b>{down}</b>
        <span class="bar" role="img" aria-label={phases.map(([name, took]) => `${name} ${ms(took)}`).join(", ")}>
          {phases.map(([name, took]) => (
            <i key={name} class={`phase ${phaseColour(name)}`} style={{ width: `${(100 * took) / whole}%` }} title={`${name} ${ms(took)}`} />
          ))}
        </span>
      </summary>
      <p>{one.cause}{one.why_rung ? ` (${one.why_rung})` : ""}{one.note ? `; ${one.note}` : ""}</p>
      <p class="legend">
        {phases.map(([name, took]) => <span key={name}><i class={`dot ${phaseColour(name)}`} />{name} {ms(took)}</span>)}
      </p>
      {one.downtime_ms != null && one.adds_up ? <p data-sum>{one.kind === "move" ? "pause" : "downtime"} {ms(one.downtime_ms)} = {one.adds_up} <span class="muted">{one.phases_before.length ? `(${one.phases_before.join(" and ")} come before, training goes on)` : ""}</span></p> : null}
      {one.read_from ? <p data-trouble>Trouble: {one.trouble} <span class="muted">(read from: {one.read_from})</span></p> : null}
      <Options options={one.options} way={one.way} />
      <Votes positions={one.positions} />
      {one.certificates.map((each) => (
        <p key={each.rank} class="proof">
          rank {each.rank}: state {each.equal ? "equal" : "DIFFERS"}, {size(each.bytes)} from rank {each.source_rank} after step {each.step}
          {" "}<code>{each.joiner_digest.slice(0, 16)}</code>
        </p>
      ))}
    </details>
  );
}

function Options({ options, way }) {
  if (!options.length) return null;
  return (
    <table class="options">
      <thead><tr><th>what could be done</th><th>would cost</th><th>because</th></tr></thead>
      <tbody>
        {options.map((each) => (
          <tr key={each.name} class={each.name === way ? "is-taken" : ""}>
            <td>{each.name}{each.name === way ? ", which was done" : ""}</td><td>{ms(each.ms)}</td><td>{each.why}</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

function Votes({ positions }) {
  if (!positions.length) return null;
  const alike = new Map();
  for (const vote of positions) {
    const said = vote.finished ? "the script has ended" : `step ${vote.committed} committed${vote.gate ? `, at the gate of ${vote.gate}` : ""}`;
    alike.set(said, [...(alike.get(said) || []), vote.rank]);
  }
  return <p>{[...alike].map(([said, ranks]) => `rank ${spans(ranks)}: ${said}`).join("; ")}</p>;
}

export function Timeline({ incidents, entries }) {
  const marks = incidents.map((one) => {
    const at = Object.values(one.marks);
    return { one, from: Math.min(...at), to: Math.max(...at) };
  }).filter((mark) => Number.isFinite(mark.from));
  const times = [...marks.flatMap((mark) => [mark.from, mark.to]), ...entries.map((one) => one.at_us)];
  const first = Math.min(...times);
  const span = Math.max(...times) - first || 1;
  const x = (at) => `${(100 * (at - first)) / span}%`;
  return (
    <div class="timeline" role="img" aria-label={`${marks.length} incidents over time`}>
      {entries.map((one) => <i key={one.seq} class="tick" style={{ left: x(one.at_us) }} title={`${clock(one.at_us)} ${one.text}`} />)}
      {marks.map(({ one, from }) => (
        <i key={`i${one.number}`} class={`mark is-${one.kind}`} style={{ left: x(from) }} title={`${clock(from)} #${one.number} ${one.cause}`} />
      ))}
    </div>
  );
}
