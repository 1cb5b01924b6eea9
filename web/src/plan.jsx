// SPDX-License-Identifier: Apache-2.0
// A roll or a placement: many moves, one after the other, and how far they are.

import { ago } from "./words.js";

export function Plan({ plan, may, steer }) {
  const parts = [["over", plan.over], ["away", plan.away], ["left", plan.left]];
  const all = parts.reduce((sum, [, machines]) => sum + machines.length, 0) || 1;
  const going = plan.standing === "going";
  const why = may ? undefined : "This takes the operator's token.";
  return (
    <div class="plan" data-plan={plan.number}>
      <p>{plan.text}{plan.reason ? ` (${plan.reason})` : ""}; asked for {ago(plan.since_s)} ago.</p>
      <span class="bar" role="img" aria-label={parts.map(([name, machines]) => `${name} ${machines.length}`).join(", ")}>
        {parts.map(([name, machines]) => (
          <i key={name} class={`phase is-${name}`} style={{ width: `${(100 * machines.length) / all}%` }} title={`${name}: ${machines.join(", ") || "none"}`} />
        ))}
      </span>
      {plan.standing === "done" ? null : (
        <p class="acts">
          <button class="act" data-plan-act disabled={!may} title={why} onClick={() => steer(!going)}>{going ? "stop it" : "let it go on"}</button>
        </p>
      )}
    </div>
  );
}
