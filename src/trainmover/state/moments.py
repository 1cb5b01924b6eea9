# SPDX-License-Identifier: Apache-2.0
"""The table of state: every kind of state against every moment at which state matters.

A hole in the promise was always a cell of this table that nobody had filled. So it is written down
here, whole. What lies beside a tracked object is found by `kinds`, and `Tracked` asks the table
what to do with it: a new kind needs a row and a finder. `tests/state/test_table.py` goes through
the cells: none may be empty, what is named must be there, and for each of those kinds a retry, the
record and a comparison are tried out.

    retry    a step is run again in place: who puts back what the broken-off attempt has changed
    record   at each fetch and gate: what goes to the buddy, since no other rank holds it
    joiner   a rank is taken: where it has it from
    cut      all ranks go back: where they have it from
    compare  a round, a boundary, an arrival: what is hashed, or checked
"""

from enum import StrEnum
from typing import NamedTuple


class Moment(StrEnum):
    """See the module's text."""

    RETRY = "retry"
    RECORD = "record"
    JOINER = "joiner"
    CUT = "cut"
    COMPARE = "compare"


class Do(StrEnum):
    """What is done with a kind of state at a moment.

    COPY     its bytes are kept in this process, and put back
    KEEP     its memory is copied in this process, and put back into the same objects
    SEND     its bytes go along
    HASH     a hash of it is compared
    CHECK    version counters and addresses are; a change is a finding
    REFUSE   what could not be kept is named, before it can matter
    REBUILD  it follows from other state, or from the script
    """

    COPY = "copy"
    KEEP = "keep"
    SEND = "send"
    HASH = "hash"
    CHECK = "check"
    REFUSE = "refuse"
    REBUILD = "rebuild"


class Cell(NamedTuple):
    """by: the file that does it, from `trainmover` on."""

    do: Do
    by: str


_BEFORE = Cell(Do.COPY, "worker/step/before.py")
_GRAPH = Cell(Do.KEEP, "worker/keep/script_graph.py")
_IN_RECORD = Cell(Do.SEND, "worker/step/deposit.py")
_FROM_RECORD = Cell(Do.SEND, "worker/join/way/way.py")
_FROM_RANKS = Cell(Do.SEND, "worker/join/taken.py")
_IN_SNAPSHOT = Cell(Do.SEND, "state/snapshot.py")
_IN_ROUNDS = Cell(Do.HASH, "state/proof/fingerprint.py")
_BY_RANKS = Cell(Do.REBUILD, "worker/join/taken.py")
"""Not in a record: other ranks hold it, or a snapshot."""


def _bulk(retry: Cell) -> dict[Moment, Cell]:
    return dict(zip(Moment, (retry, _BY_RANKS, _FROM_RANKS, _IN_SNAPSHOT, _IN_ROUNDS), strict=True))


def _small(retry: Cell = _BEFORE, compare: Cell = _IN_ROUNDS) -> dict[Moment, Cell]:
    return dict(zip(Moment, (retry, _IN_RECORD, _FROM_RECORD, _IN_SNAPSHOT, compare), strict=True))


PARTS = {
    "modes": _small(),
    "used": _small(),
    "buffers": _small(_GRAPH),
    "large_buffers": {
        **_bulk(_GRAPH),
        Moment.RECORD: Cell(Do.SEND, "state/kinds/modules/large_buffers.py"),
        Moment.COMPARE: Cell(Do.CHECK, "state/proof/samples.py"),  # Rounds hash the tensors.
    },
    "unsaved": _small(_GRAPH),
    "attributes": _small(),
    "hooks": _small(_GRAPH),
    "settings": _small(_GRAPH),
    "stages": _small(_GRAPH),
    "gradients": _small(Cell(Do.KEEP, "state/kinds/gradients.py")),
    "unsharded": _small(Cell(Do.KEEP, "worker/step/before.py")),
}
"""What lies beside a tracked object, since its state_dict() has it not, or not for each rank.
Gradients, sharded or not, are bulk state where they are too large for a record; so are buffers, of
which a hash goes with it."""

IN_BYTES = {Moment.RETRY: Do.COPY, Moment.RECORD: Do.SEND, Moment.COMPARE: Do.HASH}
"""What is done at these moments with kinds that are taken as bytes."""

TABLE: dict[str, dict[Moment, Cell]] = {
    **PARTS,
    "parameters": _bulk(Cell(Do.CHECK, "worker/step/changes.py")),
    "optimizers": _bulk(Cell(Do.CHECK, "worker/step/changes.py")),
    "bulk objects": _bulk(Cell(Do.CHECK, "worker/step/changes.py")),
    "small objects": _small(),
    "tracked generators": _small(),
    "global generators": _small(compare=Cell(Do.REBUILD, "state/rng.py")),
    "place in the data": _small(
        retry=Cell(Do.REBUILD, "worker/data/draws.py"),
        compare=Cell(Do.HASH, "worker/data/trail.py"),
    ),
    "batches": {
        Moment.RETRY: _GRAPH,
        Moment.RECORD: Cell(Do.HASH, "worker/data/batch_hash.py"),
        Moment.JOINER: Cell(Do.REBUILD, "worker/data/batches.py"),
        Moment.CUT: Cell(Do.REBUILD, "worker/data/batches.py"),
        Moment.COMPARE: Cell(Do.HASH, "worker/data/batch_hash.py"),
    },
    "the script's variables": {
        Moment.RETRY: Cell(Do.COPY, "worker/keep/script_graph.py"),
        Moment.RECORD: Cell(Do.SEND, "worker/keep/script_graph.py"),
        Moment.JOINER: Cell(Do.SEND, "worker/keep/script_graph.py"),
        Moment.CUT: Cell(Do.SEND, "worker/keep/script_graph.py"),
        Moment.COMPARE: Cell(Do.CHECK, "worker/join/refusal.py"),
    },
    "groups": {
        Moment.RETRY: Cell(Do.REBUILD, "comm/roster.py"),
        Moment.RECORD: Cell(Do.REFUSE, "worker/member.py"),
        Moment.JOINER: Cell(Do.REBUILD, "comm/roster.py"),
        Moment.CUT: Cell(Do.REBUILD, "comm/roster.py"),
        Moment.COMPARE: Cell(Do.CHECK, "comm/roster.py"),
    },
}
