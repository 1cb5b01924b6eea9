"""The journal knows which samples each committed step used, and sees when one came again."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainmover.errors import StateMismatch
from trainmover.ids import Epoch, Rank, Step
from trainmover.journal import Journal
from trainmover.journal.samples import Used, _ids, _spans, data_passes
from trainmover.protocol.messages import Draw, JobSpec, Row


def drawn(*ids: int | str, source: str = "0", data_pass: int = 0) -> Draw:
    return Draw(source=source, data_pass=data_pass, ids=list(ids))


def row(step: int, *draws: Draw) -> Row:
    return Row(step=Step(step), at_us=1, values={}, samples=list(draws))


def used(rank: int, step: int, *draws: Draw) -> Used:
    return Used(Rank(rank), Step(step), list(draws))


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal.create(tmp_path / "j.sqlite", JobSpec(run_id="r", argv=["train.py"], exact=True))


def test_samples_come_back_by_step_and_rank(journal: Journal) -> None:
    for rank in (1, 0):
        rows = [row(step, drawn(rank, step, "a")) for step in (1, 2)]
        journal.append_rows(Rank(rank), Epoch(1), [*rows, row(3)])
    with Journal.open(journal.path) as reader:
        assert list(reader.used()) == [
            used(rank, step, drawn(rank, step, "a")) for step in (1, 2) for rank in (0, 1)
        ]


def test_a_step_made_again_must_use_the_same_samples(journal: Journal) -> None:
    for epoch in (1, 2):
        journal.append_rows(Rank(0), Epoch(epoch), [row(1, drawn(4, 5))])
    with pytest.raises(StateMismatch, match="step 1 twice with other values: samples"):
        journal.append_rows(Rank(0), Epoch(2), [row(1, drawn(4, 6))])
    assert [one.draws for one in journal.used()] == [[drawn(4, 5)]]


def test_an_id_in_two_steps_or_twice_in_one_came_again() -> None:
    (whole,) = data_passes(
        [used(0, 1, drawn(1, 2)), used(1, 2, drawn(2, 3)), used(0, 3, drawn(7, 7))]
    )
    assert whole.repeated == {2: [(1, 0), (2, 1)], 7: [(3, 0), (3, 0)]}
    assert (whole.steps, whole.ranks, whole.drawn) == ((1, 3), [0, 1], 6)


def test_ranks_that_share_the_samples_of_a_step_use_them_once() -> None:
    (whole,) = data_passes([used(rank, 1, drawn(1, 2)) for rank in (0, 1)])
    assert not whole.repeated


def test_every_pass_and_every_loop_counts_for_itself() -> None:
    draws = [drawn(1), drawn(1, data_pass=1), drawn(1, source="1")]
    passes = data_passes([used(0, step, draw) for step, draw in enumerate(draws)])
    assert [(whole.source, whole.data_pass) for whole in passes] == [("0", 0), ("0", 1), ("1", 0)]
    assert not any(whole.repeated for whole in passes)


@given(st.lists(st.integers(-3, 12) | st.text(max_size=2)))
def test_ids_come_back_from_their_short_form(ids: list[int | str]) -> None:
    assert _ids(_spans(ids)) == ids
    assert _spans(list(range(100))) == [[0, 99]]
