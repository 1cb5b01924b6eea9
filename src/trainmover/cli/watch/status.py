# SPDX-License-Identifier: Apache-2.0
"""`trainmover status`: machines, ranks, step, speed, and the last incidents."""

import argparse
from collections.abc import Iterator
from typing import Any

from trainmover.cli.client import Client
from trainmover.cli.console import Terminal, whole_lines
from trainmover.cli.options import which_run
from trainmover.cli.output import say_json
from trainmover.cli.watch.machines import machine_lines
from trainmover.ids import Rank
from trainmover.server.ranks import ranks_named, ranks_text
from trainmover.server.view.slowness import plot
from trainmover.server.view.waiting import stop_text
from trainmover.server.view.watching import stands_text

INCIDENTS_SHOWN = 5


def main(options: argparse.Namespace) -> int:
    """Ask once and print; or again and again."""
    client = Client(which_run(options))
    if options.watch:
        from trainmover.cli.watch.top import follow

        return follow(client, 1.0, as_json=options.json)
    status = client.status()
    if options.json:
        say_json(status)
    else:
        show(status, whole_lines())
    return 0


def show(status: dict[str, Any], console: Terminal, rows: int | None = None) -> None:
    """Print a snapshot for people. rows: of machines, so many at most."""
    console.print_line(headline(status))
    redundancy = status["redundancy"]
    console.print_line(redundancy["text"], style="bold yellow" if redundancy["alarm"] else None)
    if line := waits_line(status["change"]):
        console.print_line(line, style="bold yellow")
    for line in waiting_lines(status):
        console.print_line(line, style="yellow")
    for part in machine_lines(status, console.width, rows):
        console.print_line(part) if isinstance(part, str) else console.print(part)
    for incident in status["incidents"][-INCIDENTS_SHOWN:]:
        console.print_line(incident_line(incident))
    for line in (snapshots_line(status["snapshots"]), checkpoint_line(status["checkpoint"])):
        if line:
            console.print_line(line)
    if status["controller"]["restarts"]:
        console.print_line(controller_line(status["controller"]))
    if status["journal"]["unwritten"]:
        console.print_line(journal_line(status["journal"]), style="bold yellow")
    for line in watch_lines(status["watch"], status["quarantined"]):
        console.print_line(line)
    for line in absent_lines(status):
        console.print_line(line)
    for line in anomaly_lines(status["anomalies"]):
        console.print_line(line)
    for line in slow_lines(status["stragglers"]):
        console.print_line(line)
    if status["plan"]:
        console.print_line(status["plan"]["text"])
    if status["replicas"]["step"]:
        console.print_line(replicas_line(status["replicas"]))
    for divergence in status["divergences"][-INCIDENTS_SHOWN:]:
        console.print_line(divergence["text"], style="bold yellow")


def headline(status: dict[str, Any]) -> str:
    """run, what it does, membership, step, loss, speed."""
    parts = [f"run {status['run']}", doing(status), f"membership {status['epoch']}"]
    of = f" of {status['length']}" if status["length"] else ""
    parts.append(f"step {status['step']}{of}")
    if status["loss"] is not None:
        parts.append(f"loss {status['loss']:.6g}")
    if status["step_ms"] is not None:
        parts.append(f"{status['step_ms']:.0f} ms/step")
    if status["change"] and (taken := status["change"]["state_bytes"]):
        parts.append(f"state {taken['here'] / 1e9:.2f} of {taken['whole'] / 1e9:.2f} GB")
    return "  ".join(parts)


def doing(status: dict[str, Any]) -> str:
    """Return what the job as a whole does. In a move it trains on, in a recovery it does not."""
    change = status["change"]
    if change is None and status["phase"] == "gathering":
        there = len(status["machines"])
        return f"gathering: {there} of {sum(status['asked'].values())} machines are there"
    if change is None:
        return str(status["phase"])
    if change["waits"]:
        return "waiting for a machine"
    if change["kind"] == "move":
        return f"{status['phase']}  move: {change['stage']}"
    return f"recovering: {change['stage']}"


def pause_text(status: dict[str, Any]) -> str:
    """Return why the job does not train, or for what it stands still; "" if it trains."""
    if status["phase"] != "running" or status["change"] is not None:
        return doing(status)
    return stop_text(status["waiting"])


def waits_line(change: dict[str, Any] | None) -> str:
    """Return what is waited for, how long yet, and what to do; "" if for nothing."""
    if change is None or not (waits := change["waits"]):
        return ""
    count = waits["machines"]
    need = f"{count} machine{'s' * (count > 1)} for {ranks_named(waits['ranks'])}"
    end = f"without, the job ends in {waits['left_s']:.0f} s"
    return f"needs {need}: {end} (trainmover add starts one here)"


def waiting_lines(status: dict[str, Any]) -> list[str]:
    """Return a line for each thing that the job waits for: since when, until when. Missing machines
    are the affair of `waits_line`."""
    lines = []
    change = status["change"]
    for one in status["waiting"] if change is None or not change["waits"] else ():
        since = "" if one["since_s"] is None else f", for {one['since_s']:.1f} s"
        until = "" if one["left_s"] is None else f", at most {one['left_s']:.0f} s more"
        lines.append(f"waits for {one['what']}{since}{until}")
    return lines


def controller_line(controller: dict[str, Any]) -> str:
    """Return how often the controller died, and how long the present one lives."""
    times = controller["restarts"]
    often = "once" if times == 1 else f"{times} times"
    return f"the controller was restarted {often}, {controller['since_s']:.0f} s ago"


def journal_line(journal: dict[str, Any]) -> str:
    """Return what is not written, while the journal's disk takes nothing."""
    kept = f"{journal['unwritten']} records are in memory only"
    return f"the journal {journal['path']} cannot be written ({journal['why']}): {kept}"


def incident_line(incident: dict[str, Any]) -> str:
    """Return one line for one incident."""
    who = f"{incident['machine'] or 'a link'} -> {incident['joiner'] or _alone(incident)}"
    parts = [f"#{incident['number']} {incident['kind']} {who}", incident["outcome"]]
    if incident["step"] is not None:
        parts.append(f"after step {incident['step']}")
    if incident["downtime_ms"] is not None:
        parts.append(f"downtime {incident['downtime_ms']:.0f} ms")
    if incident["certificates"]:
        equal = all(certificate["equal"] for certificate in incident["certificates"])
        parts.append("state equal" if equal else "STATE DIFFERS")
    return "  ".join(parts) + (f"  ({incident['note']})" if incident["note"] else "")


def _alone(incident: dict[str, Any]) -> str:
    """Return what is done, or was, where no machine joins."""
    if (far := {2: "all go back", 3: "all start again"}.get(incident["rung"])) is not None:
        return far
    if incident["outcome"] == "open":
        return "waits for a machine" if incident["ranks"] else "the step is run again"
    return "retried in place" if incident["outcome"] == "done" else "nobody"


def snapshots_line(snapshots: dict[str, Any]) -> str:
    """Return the newest snapshot that all ranks can go back to; "" if there is nothing to say."""
    if snapshots["why_none"]:
        return f"no snapshots: {snapshots['why_none']}"
    if snapshots["step"] is None or not snapshots["every"]:
        return ""
    gone = "" if snapshots["at_hand"] else "  LOST: the next one is awaited"
    size = f"{snapshots['bytes'] / 1e6:.1f} MB, {snapshots['cost_ms']:.1f} ms"
    return f"snapshot after step {snapshots['step']}, every {snapshots['every']}  ({size}){gone}"


def checkpoint_line(checkpoint: dict[str, Any] | None) -> str:
    """Return the newest checkpoint, and where it is; "" if none are written."""
    if checkpoint is None:
        return ""
    of = "none yet" if checkpoint["step"] is None else f"after step {checkpoint['step']}"
    size = f"  ({checkpoint['bytes'] / 1e6:.1f} MB)" if checkpoint["step"] is not None else ""
    return f"checkpoint {of}, every {checkpoint['every']}, in {checkpoint['folder']}{size}"


def watch_lines(watch: list[dict[str, Any]], quarantined: dict[str, float]) -> Iterator[str]:
    """Yield how long ranks may stand at one place, who stands, and which machines are kept out."""
    alike: dict[str, list[Rank]] = {}
    for row in watch:
        paused = f"not watched: {row['paused']}" if row["paused"] else ""
        limit = "-" if row["deadline_s"] is None else f"{row['deadline_s']:.1f} s"
        alike.setdefault(paused or limit, []).append(row["rank"])
    if alike:
        told = "  ".join(f"{ranks_text(ranks)} {limit}" for limit, ranks in alike.items())
        yield f"a rank counts as stuck after: {told}"
    for row in watch:
        if stands := row["stands"]:
            yield stands_text(
                row["rank"], stands["where"], stands["what"], stands["since_s"], stands["step"]
            )
    for machine, left_s in quarantined.items():
        yield f"{machine} was lost several times: kept out for another {left_s:.0f} s"


def absent_lines(status: dict[str, Any]) -> Iterator[str]:
    """Cordoned machines that are not here: they would be so again."""
    here = {machine["id"] for machine in status["machines"]}
    for name, cordon in status["cordoned"].items():
        if name not in here:
            why = f" ({cordon['reason']})" if cordon["reason"] else ""
            yield f"{name} is cordoned{why}, and not here"


def slow_lines(stragglers: dict[str, Any]) -> Iterator[str]:
    """Yield what was last found slow, with its steps before and since; and what a move has come
    to."""
    for found in stragglers["findings"][-1:]:
        who = found["machine"] or "everybody"
        if found["peer"]:
            who = f"the way between {who} and {found['peer']}"
        yield f"{who} was slow ({found['kind']}) at step {found['step']}: {found['done']}"
        if found["before"]:
            shown = f"{plot(found['before'] + found['since'])}"
            yield f"  {shown}  {found['own_ms']:.0f} ms a step, others {found['usual_ms']:.0f}"
    for move in stragglers["moves"][-1:]:
        if move["own_after_ms"]:
            yield f"  {move['leaver']} -> {move['joiner']}: {move['text']}"


def anomaly_lines(anomalies: dict[str, Any]) -> Iterator[str]:
    """Yield what was found last, of machines that may fail soon."""
    for one in anomalies["findings"][-INCIDENTS_SHOWN:]:
        often = f" ({one['times']} times)" if one["times"] > 1 else ""
        may = " may fail soon" if one["grave"] else ""
        yield f"{one['machine']}{may}: {one['text']}{often}; {one['done']}"


def replicas_line(replicas: dict[str, Any]) -> str:
    """Return who holds whose state, as the newest round saw it, and what that cost."""
    families = "  ".join(ranks_text(ranks) for ranks in replicas["families"])
    diverged = f"  differs: {ranks_text(replicas['diverged'])}" if replicas["diverged"] else ""
    cost = f"{replicas['bytes'] / 1e6:.1f} MB in {replicas['cost_ms']:.1f} ms"
    return f"same state after step {replicas['step']}: {families}{diverged}  ({cost})"
