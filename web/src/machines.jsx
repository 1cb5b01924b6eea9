// SPDX-License-Identifier: Apache-2.0
// Machines as a grid: cards while they are few, one cell each when they are many.

import { useRef, useState } from "preact/hooks";
import { ago, isSlow, looks, ms, nameEnds, roleWords, shortNames, spans } from "./words.js";

const CARDS_MAX = 48;
const NAME_MAX = 16;
const END_MAX = 4;

export function Machines({ status, chosen, choose }) {
  const machines = status.machines;
  const roleOf = roleWords(status);
  const grid = useRef(null);
  const [at, setAt] = useState(0);
  const few = machines.length <= CARDS_MAX;
  const ids = machines.map((machine) => machine.id);
  const names = few ? shortNames(ids, NAME_MAX) : nameEnds(ids, END_MAX);

  function key(event) {
    const cells = [...grid.current.children];
    const across = cells.filter((cell) => cell.offsetTop === cells[0]?.offsetTop).length || 1;
    const by = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: across, ArrowUp: -across }[event.key];
    const to = event.key === "Home" ? 0 : event.key === "End" ? cells.length - 1 : at + by;
    if (Number.isNaN(to) || !cells[to]) return;
    event.preventDefault();
    setAt(to);
    cells[to].focus();
  }

  return (
    <div class={few ? "cards" : "cells"} ref={grid} onKeyDown={key} role="group" aria-label="Machines">
      {machines.map((machine, index) => (
        <Machine
          key={machine.id} machine={machine} name={names.get(machine.id)} few={few} tab={index === Math.min(at, machines.length - 1)}
          chosen={machine.id === chosen} choose={choose} role={roleOf(machine)} slow={isSlow(machine, status.step_ms)}
        />
      ))}
    </div>
  );
}

function Machine({ machine, name, few, tab, chosen, choose, role: kind, slow }) {
  const look = looks(machine);
  const role = machine.ranks.length ? `rank ${spans(machine.ranks)}${kind ? `, ${kind}` : ""}` : "standby";
  const says = `${machine.id}: ${role}, ${machine.away ? "away" : machine.state}, step ${machine.step ?? "-"}, ${ms(machine.step_ms)}${slow ? ", slow" : ""}`;
  return (
    <button
      class={`machine is-${look}${slow ? " is-slow" : ""}`} title={says} aria-label={says} aria-pressed={chosen}
      tabIndex={tab ? 0 : -1} data-machine={machine.id} onClick={() => choose(chosen ? null : machine.id)}
    >
      {few ? (
        <>
          <b>{name}</b>
          <span>{role}</span>
          <span class="word">{machine.away ? "away" : look === "cordoned" ? `${machine.state}, cordoned` : machine.state}</span>
          <span class="figure">{machine.ranks.length ? `step ${machine.step ?? "-"}` : ""}</span>
          <span class="figure">{machine.ranks.length ? ms(machine.step_ms) : ""}</span>
        </>
      ) : (
        <span>{name}</span>
      )}
    </button>
  );
}

export function Legend({ status }) {
  const machines = status.machines;
  const slow = machines.filter((machine) => isSlow(machine, status.step_ms)).length;
  const counts = {};
  for (const machine of machines) counts[looks(machine)] = (counts[looks(machine)] || 0) + 1;
  return (
    <p class="legend">
      {["active", "warm", "warming", "cordoned", "cold", "away"].map((look) => (
        <span key={look}><i class={`dot is-${look}`} />{look} {counts[look] || 0}</span>
      ))}
      <span><i class="dot is-active is-slow" />slow {slow}</span>
    </p>
  );
}

export function Chosen({ machine, may, act }) {
  if (!machine) return <p class="muted">Choose a machine to see more, and to move, drain, cordon or kill it.</p>;
  const has = machine.ranks.length > 0;
  const why = may ? undefined : "This takes the operator's token.";
  const button = (what, disabled) => (
    <button class={what === "kill" ? "act danger" : "act"} data-act={what} disabled={disabled} title={why} onClick={() => act(what, machine.id)}>
      {what === "kill" ? "kill (drill)" : what}
    </button>
  );
  return (
    <div class="chosen">
      <p>
        <b>{machine.id}</b> on {machine.host}{machine.rack ? `, rack ${machine.rack}` : ""}: {has ? `rank ${spans(machine.ranks)}` : "standby"}, {machine.state}
        {machine.away ? ", away" : ""}; last seen {machine.last_seen_s < 1 ? "now" : `${ago(machine.last_seen_s)} ago`}
        {machine.cordoned ? `; cordoned${machine.cordoned.reason ? `: ${machine.cordoned.reason}` : ""}` : ""}
        {machine.note ? `; ${machine.note}` : ""}
      </p>
      <p class="acts">
        {button("move", !has)} {button("drain", false)}
        {machine.cordoned ? button("uncordon", false) : button("cordon", false)} {button("kill", false)}
        {may ? null : <span class="muted">You look with the viewer's token.</span>}
      </p>
    </div>
  );
}
