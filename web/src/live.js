// SPDX-License-Identifier: Apache-2.0
// What the page knows of the run: a snapshot, and what has come behind it.
//
//   status  fetched at the start, after each entry of the journal (a few at once), and after a break
//   entry   comes over the stream, in order, resumed after the last one
//   pulse   once a second: how far each machine is

import * as api from "./api.js";
import { clock, isOver } from "./words.js";

const ENTRIES_KEPT = 300;
const POINTS_KEPT = 900;
const LOOK_AGAIN_MS = 400;
const LOOK_AGAIN_MS_A_MACHINE = 3;
const RETRY_MS = 1000;

export function follow(changed) {
  const live = { status: null, entries: [], points: [[], [], []], away: "", seq: 0 };
  let heard = Date.now();
  let source = null;
  let timer = 0;
  let stopped = false;

  const tell = () => changed({ ...live });

  async function look() {
    timer = 0;
    try {
      live.status = await api.status();
      live.seq = Math.max(live.seq, live.status.seq);
      reached();
      tell();
      return true;
    } catch (error) {
      if (error.status === 401) return lost(error.message);
      unreached();
      return false;
    }
  }

  function reached() {
    heard = Date.now();
    live.away = "";
  }

  // Nothing is known then of the job: it may train on, or its supervisor was killed with it.
  function unreached() {
    const since = `No contact with the controller since ${clock(heard * 1000)}.`;
    live.away = isOver(live.status) ? "" : `${since} The run may have ended; this page tries again.`;
    tell();
  }

  function lost(why) {
    stop();
    changed({ ...live, out: why });
    return false;
  }

  // A snapshot of many machines is long: the pulse says what matters meanwhile.
  function soon() {
    const machines = live.status ? live.status.machines.length : 0;
    timer = timer || setTimeout(look, Math.max(LOOK_AGAIN_MS, LOOK_AGAIN_MS_A_MACHINE * machines));
  }

  function entry(one) {
    live.seq = one.seq;
    if (one.text) {
      live.entries = [...live.entries, one].slice(-ENTRIES_KEPT);
      tell();
    }
    soon();
  }

  function pulse(beat) {
    reached();
    live.points = add(live.points, beat);
    if (live.status) live.status = moved(live.status, beat);
    tell();
  }

  async function begin() {
    if (stopped) return;
    const there = await look();
    if (stopped || isOver(live.status)) return;
    if (!there) return void setTimeout(begin, RETRY_MS);
    const after = live.entries.length ? live.seq : Math.max(0, live.seq - 100);
    source = api.stream(after, { message: entry, pulse }, () => {
      if (stopped) return;
      unreached();
      if (!isOver(live.status)) setTimeout(begin, RETRY_MS);
    });
  }

  function stop() {
    stopped = true;
    clearTimeout(timer);
    if (source) source.close();
  }

  begin();
  return { stop, look };
}

function add(points, beat) {
  const next = [[...points[0], beat.at_us / 1e6], [...points[1], beat.loss], [...points[2], beat.step_ms]];
  return next.map((row) => row.slice(-POINTS_KEPT));
}

function moved(status, beat) {
  const machines = status.machines.map((machine) => {
    const now = beat.machines[machine.id];
    if (!now) return machine.away ? { ...machine, away: false } : machine;
    const [step, step_ms, away] = now;
    if (step === machine.step && step_ms === machine.step_ms && away === machine.away) return machine;
    return { ...machine, step: step ?? machine.step, step_ms: step_ms ?? machine.step_ms, away };
  });
  const { phase, epoch, step, loss, step_ms, code, ended_because } = beat;
  return { ...status, phase, epoch, step, loss, step_ms, code, ended_because, machines };
}
