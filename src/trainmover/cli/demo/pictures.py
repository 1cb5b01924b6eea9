# SPDX-License-Identifier: Apache-2.0
"""The demo's two pictures. matplotlib is an extra: without it they raise UserError."""

from pathlib import Path
from typing import Any

from trainmover.cli.demo.recording import Recording
from trainmover.controller.state import Incident, Kind, Outcome
from trainmover.errors import UserError

INK, PALE = "#1d2433", "#8b93a3"
DISTURBED, UNDISTURBED = "#f2a541", "#1f4e8c"
EVENT_COLOURS = {Kind.MOVE: "#2a9d6f", Kind.RECOVERY: "#c8413b"}
STATES = {
    "active": ("#1f4e8c", "trains"),
    "bound": ("#f2a541", "takes ranks"),
    "leaving": ("#8d93a5", "leaves its ranks"),
    "starting": ("#e3e6ec", "starts"),
    "idle": ("#e3e6ec", "starts"),
    "warming": ("#d8e8df", "warms up"),
    "holding": ("#b3d7c4", "readies a rank"),
    "warm": ("#8cc5a8", "stands by"),
    "cold": ("#d9b8b6", "is no standby"),
    "down": ("#d9b8b6", "is no standby"),
}
"""Colour, and what the legend calls it."""
PHASE_COLOURS = {
    "detect": "#c8413b",
    "drain": "#e07a3f",
    "verdict": "#f2a541",
    "bind": "#e9d8a6",
    "pause": "#f2a541",
    "state": "#8cc5a8",
    "switchover": "#2a9d6f",
    "first_step": "#1f4e8c",
}
TRAINING_GOES_ON = "#e3e6ec"
BEFORE_THE_PAUSE = {(Kind.MOVE, "bind"), (Kind.MOVE, "prepare"), (Kind.MOVE, "pause")}


def losses(path: Path, disturbed: Recording, undisturbed: Recording) -> None:
    """Draw both loss curves, one drawn over the other, and their difference below."""
    plt = _pyplot()
    figure, (curves, below) = plt.subplots(
        2, 1, figsize=(9, 5.4), sharex=True, height_ratios=[4, 1.1], layout="constrained"
    )
    with_events, without = disturbed.mean_losses, undisturbed.mean_losses
    curves.plot(
        list(with_events), list(with_events.values()), color=DISTURBED, lw=5, alpha=0.75,
        label="a machine moved, a machine killed", solid_capstyle="round",
    )  # fmt: skip
    curves.plot(
        list(without), list(without.values()), color=UNDISTURBED, lw=1.2, label="undisturbed"
    )
    _mark_incidents(curves, below, _done(disturbed))
    curves.set_ylabel("loss, mean of all ranks")
    curves.legend(frameon=False, loc="upper right")
    steps, worst = _worst_differences(disturbed, undisturbed)
    below.plot(steps, worst, color=INK, lw=1.5)
    if not any(worst):
        below.set_ylim(-1, 1)
        below.set_yticks([0], ["0"])
    below.set_ylabel("largest\ndifference")
    below.set_xlabel("committed step")
    below.set_xlim(0, max(steps, default=1) + 1)
    equal = "not one bit differs" if not any(worst) else "THEY DIFFER"
    figure.suptitle(f"{len(disturbed.rows)} losses of {_ranks(disturbed)} ranks: {equal}")
    _save(plt, figure, path)


def incidents(path: Path, recording: Recording) -> None:
    """Machines over time above; below, one bar for each incident, cut into its phases."""
    plt = _pyplot()
    done = _done(recording)
    figure = plt.figure(figsize=(9, 3.2 + 1.3 * len(done)), layout="constrained")
    heights = [3.2] + [1.0] * len(done)
    axes = figure.subplots(len(heights), 1, height_ratios=heights, squeeze=False)
    lanes, *bars = axes[:, 0]
    origin = min(span.from_us for span in recording.spans)
    _draw_lanes(lanes, recording, origin)
    for incident in done:
        for us in _stretch(incident):
            lanes.axvline((us - origin) / 1e6, color=EVENT_COLOURS[incident.kind], lw=1.2)
    for axis, incident in zip(bars, done, strict=True):
        _draw_phases(axis, incident)
    _save(plt, figure, path)


def _pyplot() -> Any:
    try:
        import matplotlib
    except ImportError:
        raise UserError(
            "The pictures were left out: matplotlib is not installed.",
            means="The report is complete without them.",
            do="pip install 'trainmover[plots]' and run the demo again.",
        ) from None
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    plt.rcParams.update(
        {
            "font.size": 10,
            "axes.edgecolor": PALE,
            "axes.labelcolor": INK,
            "text.color": INK,
            "xtick.color": INK,
            "ytick.color": INK,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "figure.titlesize": 13,
        }
    )
    return plt


def _save(plt: Any, figure: Any, path: Path) -> None:
    figure.savefig(path, dpi=150)
    plt.close(figure)


def _done(recording: Recording) -> list[Incident]:
    return [i for i in recording.job.incidents if i.outcome is Outcome.DONE]


def _ranks(recording: Recording) -> int:
    return recording.job.spec.world_size


def _worst_differences(one: Recording, other: Recording) -> tuple[list[int], list[float]]:
    """Steps both have, and the largest difference over ranks at each."""
    worst: dict[int, float] = {}
    ours, theirs = one.losses, other.losses
    for key in ours.keys() & theirs.keys():
        worst[key[1]] = max(worst.get(key[1], 0.0), abs(ours[key] - theirs[key]))
    steps = sorted(worst)
    return steps, [worst[step] for step in steps]


def _mark_incidents(curves: Any, below: Any, done: list[Incident]) -> None:
    for incident in done:
        if incident.step is None:
            continue
        colour = EVENT_COLOURS[incident.kind]
        for axis in (curves, below):
            axis.axvline(incident.step, color=colour, lw=1.2, ls=(0, (4, 3)))
        verb = "moved to" if incident.kind is Kind.MOVE else "killed, replaced by"
        down = (
            f"\ndowntime {incident.downtime_ms:.0f} ms" if incident.downtime_ms is not None else ""
        )
        curves.annotate(
            f"{incident.machine} {verb} {incident.joiner}{down}",
            (incident.step, 0.62), xytext=(6, 0), textcoords="offset points",
            xycoords=("data", "axes fraction"), color=colour, va="top",
        )  # fmt: skip


def _draw_lanes(axis: Any, recording: Recording, origin: int) -> None:
    machines = sorted({span.machine for span in recording.spans}, reverse=True)
    shown: set[str] = set()
    for span in recording.spans:
        colour, label = STATES[span.state]
        axis.barh(
            machines.index(span.machine), (span.to_us - span.from_us) / 1e6,
            left=(span.from_us - origin) / 1e6, height=0.62, color=colour,
            label=label if label not in shown else None,
        )  # fmt: skip
        shown.add(label)
    axis.set_yticks(range(len(machines)), machines)
    axis.set_xlabel("seconds")
    axis.set_title("Machines over time", loc="left")
    axis.legend(frameon=False, ncols=4, loc="lower right", bbox_to_anchor=(1.0, 1.0), fontsize=8.5)
    axis.tick_params(left=False)


def _stretch(incident: Incident) -> tuple[int, int]:
    return min(incident.marks.values()), max(incident.marks.values())


def _draw_phases(axis: Any, incident: Incident) -> None:
    """Phases end to end, in milliseconds from the incident's beginning."""
    at = 0.0
    for name, ms in incident.phases_ms.items():
        trains = (incident.kind, name) in BEFORE_THE_PAUSE
        colour = TRAINING_GOES_ON if trains else PHASE_COLOURS.get(name, PALE)
        label = f"{name.replace('_', ' ')} {ms:.0f}{' (trains on)' * trains}"
        axis.barh(0, ms, left=at, color=colour, height=0.6, label=label)
        at += ms
    downtime = "?" if incident.downtime_ms is None else f"{incident.downtime_ms:.0f}"
    verb = "moves to" if incident.kind is Kind.MOVE else "is killed, its rank taken by"
    title = f"{incident.machine} {verb} {incident.joiner}: downtime {downtime} ms"
    axis.set_title(title, loc="left", color=EVENT_COLOURS[incident.kind])
    axis.legend(
        frameon=False, ncols=8, loc="upper left", bbox_to_anchor=(-0.01, -0.3), fontsize=8.5,
        handlelength=1.0, columnspacing=1.2, handletextpad=0.5,
    )  # fmt: skip
    axis.set_yticks([])
    axis.spines["left"].set_visible(False)
    axis.set_xlim(0, at or 1.0)
    axis.set_title("ms", loc="right", color=PALE, fontsize=9)
