"""Groups of a rank, for who takes its place."""

import pytest

from trainmover.comm import groups
from trainmover.comm.meet.listed import Listed, listed_as_bytes
from trainmover.comm.meet.places import places_in_order
from trainmover.ids import Step
from trainmover.state.script.comparison import Known
from trainmover.state.script.values import handle_entry, known_as
from trainmover.worker.join.regroup import parted_groups
from trainmover.worker.step.keeper import Moment, RankRecord

OUTSIDE = -100
ALL, OURS, THEIRS = (0, 1, 2, 3), (0, 1), (2, 3)
RANK, SOURCE = 1, 2


def record(*made: tuple[int, ...]) -> RankRecord:
    listed = listed_as_bytes([Listed(ranks, 60.0, "train.py line 7") for ranks in made])
    return RankRecord(Step(6), False, Step(5), [], Moment(b"", {}), None, [], groups=listed)


def known(ranks: tuple[int, ...] | int) -> Known:
    found: Known = (
        ranks if isinstance(ranks, int) else known_as(handle_entry(places_in_order([ranks])[0]))
    )
    return found


@pytest.mark.parametrize(
    ("there", "here", "is_apart"),
    [
        (THEIRS, OURS, True),
        (OUTSIDE, OURS, True),
        (THEIRS, OUTSIDE, True),
        (ALL, OURS, False),
        (THEIRS, ALL, False),
        (ALL, OUTSIDE, False),
        (OUTSIDE, ALL, False),
        (7, OURS, False),
        (THEIRS, 7, False),
    ],
)
def test_what_torch_gives_to_each_of_two_ranks_for_a_group_of_one(
    there: tuple[int, ...] | int,
    here: tuple[int, ...] | int,
    is_apart: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(groups.roster, "listed", lambda: record(ALL, OURS).groups)
    apart = parted_groups(RANK, SOURCE, record(ALL, THEIRS))
    assert apart(known(there), known(here)) is is_apart


def test_a_source_without_a_record_tells_of_no_group(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups.roster, "listed", lambda: record(ALL, OURS).groups)
    apart = parted_groups(RANK, SOURCE, None)
    assert not apart(known(THEIRS), known(OURS))
    assert apart(known(OUTSIDE), known(OURS))
