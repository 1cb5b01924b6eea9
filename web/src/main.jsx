// SPDX-License-Identifier: Apache-2.0
import "uplot/dist/uPlot.min.css";
import { render } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import * as api from "./api.js";
import { Chart } from "./chart.jsx";
import { Incidents, Timeline } from "./incidents.jsx";
import { follow } from "./live.js";
import { Chosen, Legend, Machines } from "./machines.jsx";
import { Ask, Kill } from "./dialogs.jsx";
import { Plan } from "./plan.jsx";
import { ago, clock, doing, ending, ms, number, size, spans } from "./words.js";

async function begin() {
  const code = /^#code=(.+)$/.exec(location.hash)?.[1];
  if (code) {
    history.replaceState(null, "", location.pathname);
    return (await api.enter({ code })).role;
  }
  return (await api.session()).role;
}

function Page() {
  const [role, setRole] = useState("");
  const [out, setOut] = useState("");
  useEffect(() => {
    begin().then(setRole, (error) => setOut(error.message));
  }, []);
  if (out) return <Door why={out} enter={(now) => { setOut(""); setRole(now); }} />;
  return <Run role={role} leave={setOut} />;
}

function Door({ why, enter }) {
  const [said, setSaid] = useState(why);
  async function submit(event) {
    event.preventDefault();
    try {
      enter((await api.enter({ token: new FormData(event.target).get("token") })).role);
    } catch (error) {
      setSaid(error.message);
    }
  }
  return (
    <main class="door">
      <h1>trainmover</h1>
      <p role="alert">{said}</p>
      <p>Where the run was started, type <code>trainmover dashboard</code>; or give a token (<code>trainmover token --viewer</code>).</p>
      <form onSubmit={submit}>
        <label>Token <input name="token" type="password" autocomplete="off" required /></label> <button>Enter</button>
      </form>
    </main>
  );
}

function Run({ role, leave }) {
  const [live, setLive] = useState(null);
  const [chosen, choose] = useState(null);
  const [asked, setAsked] = useState(null);
  const [said, setSaid] = useState("");
  const feed = useRef(null);

  useEffect(() => {
    if (!role) return;
    feed.current = follow((now) => (now.out ? leave(now.out) : setLive(now)));
    return () => feed.current.stop();
  }, [role]);

  async function ask(what, body, title) {
    setSaid(`${title} ...`);
    try {
      const answer = await api.ask(what, body);
      setSaid(answer.text);
    } catch (error) {
      setSaid(`${title}: ${error.message}`);
      if (error.status === 401) leave(error.message);
    }
    feed.current.look();
  }

  function act({ what, machine, reason, force }) {
    setAsked(null);
    ask(what, what === "kill" ? { machine, force } : { machine, reason }, `${what} ${machine}`);
  }

  const steer = (going) => ask("plan", { going }, going ? "continue the plan" : "stop the plan");

  const status = live?.status;
  return (
    <>
      <Head status={status} live={live} role={role} />
      <p class="said" role="status" aria-live="polite">{said}</p>
      {status ? <Body live={live} status={status} role={role} chosen={chosen} choose={choose} ask={setAsked} steer={steer} /> : null}
      {asked?.what === "kill" ? <Kill asked={asked} act={act} close={() => setAsked(null)} /> : null}
      {asked && asked.what !== "kill" ? <Ask asked={asked} act={act} close={() => setAsked(null)} /> : null}
    </>
  );
}

function Body({ live, status, role, chosen, choose, ask, steer }) {
  const machines = status.machines;
  const seated = machines.filter((one) => one.ranks.length).length;
  return (
    <main>
      <section class="wide">
        <h2>Machines <small>{seated} with ranks, {machines.length - seated} standby{machines.length - seated === 1 ? "" : "s"}</small></h2>
        <Legend status={status} />
        <Machines status={status} chosen={chosen} choose={choose} />
        <Chosen
          machine={machines.find((one) => one.id === chosen)} may={role === "operator"}
          act={(what, machine) => ask({ what, machine })}
        />
      </section>
      {status.plan ? (
        <section class="wide"><h2>Plan</h2><Plan plan={status.plan} may={role === "operator"} steer={steer} /></section>
      ) : null}
      <section><Chart label="loss" times={live.points[0]} values={live.points[1]} /></section>
      <section><Chart label="step time, ms" times={live.points[0]} values={live.points[2]} /></section>
      <section class="wide"><h2>Standbys</h2><Standbys rows={status.standbys} redundancy={status.redundancy} /></section>
      <section class="wide">
        <h2>Timeline</h2>
        <Timeline incidents={status.incidents} entries={live.entries} />
        <Events entries={live.entries} />
      </section>
      <section class="wide"><h2>Incidents</h2><Incidents incidents={status.incidents} /></section>
    </main>
  );
}

function Head({ status, live, role }) {
  const old = status && status.version !== __VERSION__;
  const away = live?.away || "";
  useEffect(() => { document.title = status ? `${doing(status, away)} - ${status.run} - trainmover` : "trainmover"; });
  const alarm = status?.redundancy.alarm && status.redundancy.text;
  const told = old ? `This page is of version ${__VERSION__}, the controller of ${status.version}: load it again.` : away;
  return (
    <header>
      <h1>trainmover <small>{status ? status.run : " "}</small></h1>
      <dl>
        <Figure name="status" value={status ? doing(status, away) : "..."} wide />
        <Figure name="membership" value={status?.epoch ?? "-"} />
        <Figure name="step" value={status?.step ?? "-"} />
        <Figure name="loss" value={number(status?.loss)} />
        <Figure name="step time" value={ms(status?.step_ms)} />
        <Figure name="standbys ready" value={status ? `${status.redundancy.ready} of ${status.redundancy.wanted}` : "-"} />
        <Figure name="signed in as" value={role || "..."} />
      </dl>
      <p class="banner" role="status">{told || ending(status) || alarm || " "}</p>
    </header>
  );
}

const Figure = ({ name, value, wide }) => <div class={wide ? "figure-wide" : ""}><dt>{name}</dt><dd>{value}</dd></div>;

function Standbys({ rows, redundancy }) {
  if (!rows.length) return <p class="muted">{redundancy.text}</p>;
  return (
    <div class="scroll"><table>
      <thead><tr>{["machine", "ranks", "ready", "trace", "warmed", "expected downtime", "held", "GPU memory", ""].map((name) => <th key={name}>{name}</th>)}</tr></thead>
      <tbody>
        {rows.slice(0, 200).map((row) => (
          <tr key={`${row.machine} ${row.slots}`}>
            <td>{row.machine}</td><td>{spans(row.ranks) || "-"}</td>
            <td>{row.holds.length ? `holds ${spans(row.holds)}` : row.state}</td>
            <td>{row.trace_equal == null ? "-" : row.trace_equal ? "equal" : "failed"}{row.stale ? " (old)" : ""}</td>
            <td>{row.warmed_s == null ? "-" : `${ago(row.warmed_s)} ago`}</td>
            <td>{ms(row.predicted_ms)}</td><td>{row.held_bytes == null ? "-" : size(row.held_bytes)}</td>
            <td>{row.device_bytes ? size(row.device_bytes) : "-"}</td>
            <td>{[row.cordoned ? "cordoned" : "", row.note].filter(Boolean).join("; ")}</td>
          </tr>
        ))}
      </tbody>
    </table></div>
  );
}

function Events({ entries }) {
  return (
    <ol class="events">
      {entries.slice(-100).reverse().map((one) => <li key={one.seq}><time>{clock(one.at_us)}</time> <span>{one.text}</span></li>)}
    </ol>
  );
}

render(<Page />, document.getElementById("page"));
