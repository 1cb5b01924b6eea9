# SPDX-License-Identifier: Apache-2.0
"""What Prometheus scrapes: made from the job as it is, when it is asked for."""

from collections import Counter
from collections.abc import Iterable, Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.registry import Collector

from trainmover.controller.change.seats import spare
from trainmover.controller.state import Kind, MachineState, Outcome, Phase
from trainmover.server.measures import Histogram
from trainmover.server.run import Server
from trainmover.version import VERSION

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4
CORDONED = "cordoned"
READINESS = (*(str(state) for state in MachineState if state is not MachineState.ACTIVE), CORDONED)
"""What a machine without ranks may be: each is always there, so that an alert sees a 0."""


class Metrics:
    """Of one server."""

    def __init__(self, server: Server) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(_OfServer(server))

    def text(self) -> bytes:
        """In Prometheus' text format."""
        return bytes(generate_latest(self._registry))


class _OfServer(Collector):
    def __init__(self, server: Server) -> None:
        self._server = server

    def describe(self) -> Iterable[Metric]:
        """Nothing beforehand: what there is, the job says."""
        return []

    def collect(self) -> Iterator[Metric]:
        server = self._server
        yield _gauge("run_info", "The run.", 1, run=server.spec.run_id, version=VERSION)
        yield from _of_steps(server)
        yield from _of_machines(server)
        yield from _of_incidents(server)
        yield from _of_controller(server)


def _of_steps(server: Server) -> Iterator[Metric]:
    job, progress, measures = server.job, server.progress, server.measures
    phases = GaugeMetricFamily(
        "trainmover_phase", "What the job does: 1 for one.", labels=["phase"]
    )
    for phase in Phase:
        phases.add_metric([phase.value], float(job.phase is phase))
    yield phases
    yield _gauge("epoch", "Membership in force.", job.epoch)
    yield _gauge("step", "Last step that all ranks have committed.", progress.step)
    if progress.loss is not None:
        yield _gauge("loss", "Of the newest step.", progress.loss)
    yield _histogram("step_duration_seconds", "From commit to commit.", {(): measures.steps})
    if (goodput := goodput_of(server)) is not None:
        yield _gauge("goodput_ratio", "Part of the time not lost to incidents.", goodput)
    if measures.cut_us is not None:
        age_s = max(0, server.now() - measures.cut_us) / 1e6
        yield _gauge("snapshot_age_seconds", "Since all ranks had one of a step.", age_s)
    if measures.checkpoint_us is not None:
        age_s = max(0, server.now() - measures.checkpoint_us) / 1e6
        yield _gauge("checkpoint_age_seconds", "Since the newest was published.", age_s)
    if job.cut is not None:
        behind = max(0, progress.step - job.cut.step)
        yield _gauge("snapshot_behind_steps", "Steps since the newest snapshot.", behind)


def goodput_of(server: Server) -> float | None:
    """Since this controller has heard of a commit; None: of none yet."""
    begun_us, now_us = server.measures.since_us, server.now()
    if begun_us is None or now_us <= begun_us:
        return None
    step_ms = server.progress.step_ms or 0.0
    gone = server.incidents
    lost_us = 1000.0 * (gone.downtime_ms + gone.redone * step_ms)
    for incident in server.job.incidents:
        since_us = min(incident.marks.values(), default=now_us)
        if since_us < begun_us:
            continue
        if incident.outcome is Outcome.OPEN and incident.kind is Kind.RECOVERY:
            lost_us += now_us - since_us
        lost_us += 1000.0 * ((incident.downtime_ms or 0.0) + incident.redone * step_ms)
    return max(0.0, 1.0 - lost_us / (now_us - begun_us))


def _of_machines(server: Server) -> Iterator[Metric]:
    job, now_us = server.job, server.now()
    ranks = GaugeMetricFamily("trainmover_machine_ranks", "Ranks it holds.", labels=["machine"])
    age = GaugeMetricFamily(
        "trainmover_heartbeat_age_seconds", "Since anything was heard.", labels=["machine"]
    )
    heard, seated = server.heard_us(), set(job.seats)
    for name in job.machines:
        ranks.add_metric([name], job.spec.nproc if name in seated else 0)
        age.add_metric([name], max(0, now_us - heard.get(name, now_us)) / 1e6)
    yield ranks
    yield age
    yield _gauge("machines_away", "Of which nothing is heard.", len(server.control.absence.away))
    ready = Counter(CORDONED if m.id in job.cordoned else str(m.state) for m in spare(job))
    standbys = GaugeMetricFamily("trainmover_standbys", "By readiness.", labels=["readiness"])
    for state in READINESS:
        standbys.add_metric([state], ready[state])
    yield standbys
    yield _gauge("standbys_wanted", "That the run was started with.", job.spec.standbys)
    cordoned = sum(name in job.machines for name in job.cordoned)
    yield _gauge("machines_cordoned", "That take no ranks.", cordoned)


def _of_incidents(server: Server) -> Iterator[Metric]:
    tally = server.incidents.tally.and_of(server.job.incidents)
    incidents = CounterMetricFamily(
        "trainmover_incidents", "By kind and cause.", labels=["kind", "cause", "outcome"]
    )
    for labels, count in sorted(tally.count.items()):
        incidents.add_metric(labels, count)
    yield incidents
    yield _histogram("downtime_seconds", "Of the job, an incident.", tally.downtime, ["kind"])
    took = "How long each phase took."
    yield _histogram("incident_phase_seconds", took, tally.phases, ["kind", "phase"])
    yield _counter("unequal_steps", "Made again with other numbers.", server.job.unequal)
    yield _counter("state_moved_bytes", "State that joiners took.", tally.moved)


def _of_controller(server: Server) -> Iterator[Metric]:
    queue = "Facts and rows that were heard and are not written to the journal yet."
    yield _gauge("controller_event_queue", queue, server.unwritten)
    lag = "For which the loop's last beat was late."
    yield _gauge("controller_loop_lag_seconds", lag, max(0.0, server.pulse.lag_s))
    yield _counter("controller_restarts", "Controllers before this one.", server.job.takeovers)
    yield _counter("journal_entries", "Events and notes.", server.news.newest)


def _gauge(name: str, what: str, value: float, **labels: str) -> Metric:
    gauge = GaugeMetricFamily(f"trainmover_{name}", what, labels=list(labels))
    gauge.add_metric(list(labels.values()), value)
    return gauge


def _counter(name: str, what: str, value: float) -> Metric:
    counter = CounterMetricFamily(f"trainmover_{name}", what)
    counter.add_metric([], value)
    return counter


def _histogram(
    name: str,
    what: str,
    seen: dict[tuple[str, ...], Histogram],
    labels: list[str] | None = None,
) -> Metric:
    family = HistogramMetricFamily(f"trainmover_{name}", what, labels=labels or [])
    for values, histogram in seen.items():
        family.add_metric(list(values), histogram.cumulative, histogram.sum_s)
    return family
