# SPDX-License-Identifier: Apache-2.0
"""Result of one process under check, as data that another process can read."""

from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import Any

from trainmover.check.session import Phase, Session
from trainmover.graph.compare import Difference
from trainmover.graph.nodes import Graph

INERT = frozenset(
    {"_io.TextIOWrapper", "_thread.RLock", "_thread.lock", "logging.Manager"}
    | {"threading._MainThread", "trainmover.state.tracked.Tracked"}
    | {"weakref.ProxyType", "weakref.CallableProxyType"}
    | {f"torch._C._distributed_c10d.{name}" for name in ("Reducer", "Logger")}
    | {"torch.distributed.distributed_c10d.ProcessGroup"}
    | {f"torch.distributed.tensor.placement_types.{name}" for name in ("Shard", "Replicate")}
)
"""Types of objects that belong to the process, and hold no state that a step could need."""
OPAQUE_MAX = 40
DIFFERENCES_MAX = 20


@dataclass
class Result:
    """Findings of one run of a script.

    error         what the script raised
    missing       what the session waited for when the script ended; "" if it saw all
    loops         loops around the update, outermost first: function, line, turns made
    objects       in the captured graph, by kind
    memory_bytes  of tensors and arrays in it
    opaque        objects that cannot be carried: path and type; `inert_count` others are inert
    losses        of the steps behind the capture, in hex; `repeated` when they were made again
    differences   tensors, arrays and random generators that differ afterwards: paths and values
    values        other values that differ, such as clocks
    notes         what could not be restored
    changed       nodes that each turn has changed, and `look_us` what it took to find them
    missed        changes that were not found so, as a full capture shows: paths and values
    """

    error: str = ""
    missing: str = ""
    loops: list[tuple[str, int]] = field(default_factory=list)
    objects: dict[str, int] = field(default_factory=dict)
    memory_bytes: int = 0
    opaque: list[tuple[str, str]] = field(default_factory=list)
    inert_count: int = 0
    losses: list[str] = field(default_factory=list)
    repeated: list[str] = field(default_factory=list)
    differences: list[tuple[str, str, str]] = field(default_factory=list)
    values: list[tuple[str, str, str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    changed: list[int] = field(default_factory=list)
    look_us: list[float] = field(default_factory=list)
    missed: list[tuple[str, str, str]] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """Return the result as JSON has it."""
        return asdict(self)


def result_of(session: Session, error: str) -> Result:
    """Return the result of a session that is over."""
    proof, graph = session.proof, session.captured
    opaque = [] if graph is None else graph.opaque
    named = [one for one in opaque if one.type not in INERT]
    return Result(
        error=error,
        missing="" if session.phase is Phase.OVER else session.phase.value,
        loops=[(one.function, one.line) for one in session.loops],
        objects={} if graph is None else dict(_kinds(graph)),
        memory_bytes=0 if graph is None else _memory(graph),
        opaque=[(one.path, one.type) for one in named[:OPAQUE_MAX]],
        inert_count=len(opaque) - len(named),
        losses=proof.first,
        repeated=proof.second,
        differences=_shown([one for one in proof.differences if one.is_of_numbers]),
        values=_shown([one for one in proof.differences if not one.is_of_numbers]),
        notes=proof.notes,
        changed=session.watch.changed,
        look_us=session.watch.took_us,
        missed=_shown(proof.missed),
    )


def _shown(found: list[Difference]) -> list[tuple[str, str, str]]:
    return [(one.path, one.first, one.second) for one in found[:DIFFERENCES_MAX]]


def _kinds(graph: Graph) -> Counter[str]:
    return Counter(node[0] for node in graph.nodes)


def _memory(graph: Graph) -> int:
    blocks = [node[1] for node in graph.nodes if node[0] == "block"]
    return sum(one if isinstance(one, int) else len(one) for one in blocks)
