# SPDX-License-Identifier: Apache-2.0
"""Which samples each committed step used, and whether each came exactly once in a data pass.

Kept only of loops that were asked to say so: `job.batches(loader, samples=True)`. A step that is
made again, after a loss or from a snapshot, must use the same samples: other ones are refused as
they are written.
"""

import json
import sqlite3
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import product
from typing import Any

from trainmover.ids import Rank, Step
from trainmover.protocol.messages import Columns, Draw

SCHEMA = """\
CREATE TABLE samples (rank INTEGER NOT NULL, step INTEGER NOT NULL, draws_json TEXT NOT NULL,
                      PRIMARY KEY (step, rank)) WITHOUT ROWID;
"""


@dataclass(frozen=True)
class Used:
    """What one rank drew for one committed step."""

    rank: Rank
    step: Step
    draws: list[Draw]


@dataclass
class DataPass:
    """All that was drawn of one loop in one data pass.

    places  id -> the steps and ranks that used it. Ranks of a model that is cut into parts draw the
            same samples for the same step: that counts as once.
    """

    source: str
    data_pass: int
    drawn: int = 0
    places: dict[int | str, list[tuple[Step, Rank]]] = field(default_factory=dict)

    @property
    def repeated(self) -> dict[int | str, list[tuple[Step, Rank]]]:
        """Of the ids that came more than once: where."""
        return {id_: places for id_, places in self.places.items() if _more_than_once(places)}

    @property
    def steps(self) -> tuple[Step, Step]:
        """The first and the last."""
        steps = [step for places in self.places.values() for step, _ in places]
        return min(steps), max(steps)

    @property
    def ranks(self) -> list[Rank]:
        return sorted({rank for places in self.places.values() for _, rank in places})


def write(db: sqlite3.Connection, batch: Columns) -> Iterator[tuple[Rank, Step, str]]:
    """Write in the caller's transaction; gives the steps that were there with other samples, and
    both, for people. The later ones are kept."""
    places = product(batch.ranks, batch.steps)
    for (rank, step), draws in zip(places, batch.samples, strict=True):
        if not draws:
            continue
        text = json.dumps([[draw.source, draw.data_pass, _spans(draw.ids)] for draw in draws])
        query = "SELECT draws_json FROM samples WHERE rank = ? AND step = ?"
        before = db.execute(query, (rank, step)).fetchone()
        if before is None or before[0] != text:
            db.execute("INSERT OR REPLACE INTO samples VALUES (?, ?, ?)", (rank, step, text))
        if before is not None and before[0] != text:
            yield rank, step, f"samples {before[0][:200]}, then {text[:200]}"


def read(db: sqlite3.Connection) -> Iterator[Used]:
    """By step and rank."""
    query = "SELECT rank, step, draws_json FROM samples ORDER BY step, rank"
    for rank, step, text in db.execute(query):
        draws = [
            Draw(source=source, data_pass=number, ids=_ids(spans))
            for source, number, spans in json.loads(text)
        ]
        yield Used(rank, step, draws)


def data_passes(used: Iterable[Used]) -> list[DataPass]:
    """Everything that was drawn, by loop and data pass, in the order of its first step."""
    passes: dict[tuple[str, int], DataPass] = {}
    for one in used:
        for draw in one.draws:
            key = draw.source, draw.data_pass
            whole = passes.setdefault(key, DataPass(draw.source, draw.data_pass))
            whole.drawn += len(draw.ids)
            for id_ in draw.ids:
                whole.places.setdefault(id_, []).append((one.step, one.rank))
    return [whole for whole in passes.values() if whole.places]


def _more_than_once(places: list[tuple[Step, Rank]]) -> bool:
    return len(set(places)) < len(places) or len({step for step, _ in places}) > 1


def _spans(ids: list[int | str]) -> list[Any]:
    """Runs of three and more consecutive numbers as [first, last]."""
    spans: list[Any] = []
    for id_ in ids:
        last = spans[-1] if spans else None
        if isinstance(last, list) and id_ == last[1] + 1:
            last[1] = id_
        elif isinstance(id_, int) and spans[-2:] == [id_ - 2, id_ - 1]:
            spans[-2:] = [[id_ - 2, id_]]
        else:
            spans.append(id_)
    return spans


def _ids(spans: list[Any]) -> list[int | str]:
    ids: list[int | str] = []
    for span in spans:
        ids += range(span[0], span[1] + 1) if isinstance(span, list) else [span]
    return ids
