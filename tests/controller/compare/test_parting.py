"""Replicas that part: what is called corruption, what is said once, and who is believed then."""

from dataclasses import replace

import msgspec
import pytest
from jobs import after, at_boundary, ended, lost, orders, parked, position, running, said, vault
from test_replicas import State, compared, replace_source, rounds, told

from trainmover.controller import Job
from trainmover.controller.compare.known import Divergence, Parted
from trainmover.controller.compare.replicas import replicas
from trainmover.controller.state import Stage
from trainmover.protocol import messages as m
from trainmover.server.view.divergences import divergence_text
from trainmover.server.view.sentences import sentence

MODEL = {f"w{i}": 1 for i in range(8)}


def model(value: int, **other: int) -> State:
    return dict.fromkeys(MODEL, value) | other


def found(*states: State) -> Divergence:
    """By a round, after one in which all were equal."""
    (divergence,) = rounds([model(1)] * len(states), list(states)).divergences
    return divergence


def test_few_tensors_of_one_of_three_are_corruption_if_the_others_change_alike() -> None:
    divergence = found(model(2), model(2, w3=9, w4=9), model(2))
    assert (divergence.kind, divergence.diverged) == (Parted.CORRUPTION, (1,))


@pytest.mark.parametrize(
    ("states", "why"),
    [
        ([model(2), model(3), model(2)], "all tensors at once: a rate of its own"),
        ([model(2), model(3), model(4)], "nobody agrees: each trains for itself"),
        ([model(2), model(2, w0=5)], "of two nobody knows which is right"),
        (
            [model(1, w0=2), model(1, w0=2, w1=3, w2=3), model(1, w0=2)],
            "an average of weights that one rank alone has begun to change",
        ),
    ],
)
def test_what_a_script_may_do_on_purpose_is_no_corruption(states: list[State], why: str) -> None:
    divergence = found(*states)
    assert (divergence.kind, divergence.diverged) == (Parted.APART, ()), why


def test_it_is_said_aloud_once_and_without_an_accusation() -> None:
    calm = told(running(machines=3, standbys=0), 3, *[model(1)] * 3)
    parted = told(calm, 10, model(2), model(3), model(2))
    first = sentence(calm, said("m1", m.Left()), parted)
    assert first.loud
    assert "corrupt" not in first.text.lower()
    assert "snapshots keep each rank's own state" in first.text
    more = told(parted, 30, model(5), model(6), model(7))
    assert len(more.comparison.divergences) == 2
    assert not sentence(parted, said("m1", m.Left()), more).loud


def test_right_after_a_takeover_hidden_state_is_named_and_no_machine_is_taken() -> None:
    job = running(machines=4, standbys=1)
    job = replace(job, spec=msgspec.structs.replace(job.spec, on_divergence="replace"))
    job = told(job, 3, *[model(1)] * 4)
    job = replace_source(job, rank=1, source=0)  # After step 7.
    job = told(job, 10, model(2), model(3), model(2), model(2))
    (divergence,) = job.comparison.divergences
    assert (divergence.kind, divergence.diverged) == (Parted.TAKEOVER, (1,))
    assert replicas(job, 0, [1, 2, 3]) == [2, 3]
    assert job.change is None
    assert not job.machines["m2"].suspect
    text = divergence_text(divergence, job)
    assert "rank 1 went to another process" in text
    assert "a variable, a generator, a loader" in text


def test_a_takeover_before_the_round_that_was_equal_explains_nothing() -> None:
    comparison = rounds([model(1)] * 3, [model(2)] * 3)
    early = replace(comparison, joined={1: 15})
    late = compared(early, 30, model(3), model(3, w0=9), model(3))
    assert late.divergences[0].kind is Parted.CORRUPTION


def test_a_takeover_of_another_rank_does_not_explain_what_one_has() -> None:
    comparison = replace(rounds([model(1)] * 3, [model(2)] * 3), joined={1: 25})
    one, other = (
        compared(comparison, 30, *(model(3, w0=9 if rank == odd else 3) for rank in range(3)))
        for odd in (0, 1)
    )
    assert (one.divergences[0].kind, one.divergences[0].joined) == (Parted.CORRUPTION, ())
    assert (other.divergences[0].kind, other.divergences[0].joined) == (Parted.TAKEOVER, (1,))


# --- seen when a rank is to be taken over ---------------------------------------------------------


def switching() -> Job:
    """Rank 1 of four is lost with m2; m5 is told whose state to take."""
    job = told(running(machines=4, standbys=1), 3, *[model(1)] * 4)
    job, _ = after(job, *_of_the_recovery(job, 2))
    assert job.change is not None
    assert job.change.stage is Stage.SWITCH
    return job


def _of_the_recovery(job: Job, epoch: int) -> list[object]:
    stay = [("m1", 0), ("m3", 2), ("m4", 3)]
    return [
        *([lost("m2")] if epoch == 2 else []),
        *(position(name, rank, epoch, at_us=99 * epoch) for name, rank in stay),
        *(vault(name, epoch, {1: [8]}, at_us=99 * epoch) for name in ("m1", "m3", "m4", "m5")),
        *(at_boundary(name, rank, epoch, at_us=100 * epoch) for name, rank in stay),
        *([parked("m5", 1, epoch)] if epoch == 2 else []),
    ]


def unproven(job: Job, holders: dict[int, str], unlike: list[int]) -> tuple[Job, tuple]:  # type: ignore[type-arg]
    assert job.change is not None
    fact = m.Unproven(rank=1, epoch=job.change.epoch, holders=holders, unlike=unlike)
    return after(job, said("m5", fact))


def test_of_three_holders_the_majority_is_believed_and_the_recovery_goes_on_with_it() -> None:
    job, effects = unproven(switching(), {0: "a", 2: "b", 3: "b"}, [0])
    assert orders(effects, m.Interrupt).keys() == {"m1", "m3", "m4", "m5"}
    assert len(job.incidents) == 1, "it is the same incident"
    assert job.comparison.apart == {0: 3}
    job, effects = after(job, *_of_the_recovery(job, job.epoch_last))  # type: ignore[arg-type]
    switch = orders(effects, m.Switch)["m5"]
    assert {source.rank for source in switch.sources[1]} == {2, 3}
    assert job.incidents[0].marks["verdict"] == 300, "of the last time that all came"


@pytest.mark.parametrize(
    ("holders", "unlike"),
    [
        ({0: "a", 2: "b"}, []),
        ({0: "a", 2: "a", 3: "a"}, [0, 2, 3]),
        ({0: "a", 2: "b", 3: "b"}, [2, 3]),
    ],
    ids=["they differ", "the lost rank had said otherwise", "the majority is not like it"],
)
def test_without_proof_nobody_is_believed(holders: dict[int, str], unlike: list[int]) -> None:
    job, _ = unproven(switching(), holders, unlike)
    assert set(job.comparison.apart) == {0, 1, 2, 3}
    _, effects = after(job, *_of_the_recovery(job, job.epoch_last))  # type: ignore[arg-type]
    text = ended(effects).text
    assert "ranks that held the state of rank 1 after step 3 have parted since" in text
    assert "no snapshot of all ranks yet" in text


def test_who_is_not_the_joiner_proves_nothing() -> None:
    job = switching()
    assert job.change is not None
    fact = m.Unproven(rank=1, epoch=job.change.epoch, holders={0: "a"}, unlike=[0])
    assert after(job, said("m1", fact))[0] == job
    late = m.Unproven(rank=1, epoch=1, holders={0: "a"}, unlike=[0])
    assert after(job, said("m5", late))[0] == job
