"""What a divergence tells people: which rank, tensor and step; what it means; what to do."""

import io
from dataclasses import replace

import msgspec
import pytest

from trainmover.cli.console import Terminal
from trainmover.cli.watch.status import show
from trainmover.controller.compare.known import Comparison, Divergence
from trainmover.controller.events import Tick
from trainmover.controller.state import Job
from trainmover.ids import MachineId, Rank, Step
from trainmover.protocol.messages import JobSpec
from trainmover.server.view.divergences import divergence_text
from trainmover.server.view.progress import Progress
from trainmover.server.view.sentences import sentence
from trainmover.server.view.snapshot import snapshot

SEATS = tuple(MachineId(f"m{i}") for i in (1, 2, 3))
JOB = Job(spec=JobSpec(run_id="r", argv=["x.py"], machines=3), seats=SEATS)
FOUND = Divergence(
    step=Step(30),
    since=Step(10),
    holders=(Rank(0), Rank(1), Rank(2)),
    diverged=(Rank(1),),
    paths=(("model.w",), (), ("scheduler",)),
    machines=SEATS[1:2],
)
UNKNOWN = replace(FOUND, holders=FOUND.holders[:2], diverged=(), machines=SEATS[:2])
AFTER = replace(
    JOB,
    comparison=Comparison(
        step=Step(30),
        read=2_000_000,
        took_us=1500,
        families={Rank(0): Rank(0), Rank(1): Rank(0), Rank(2): Rank(0)},
        diverged=frozenset(FOUND.diverged),
        divergences=(FOUND,),
    ),
)


def test_it_names_rank_machine_tensor_and_steps_and_is_loud() -> None:
    said = sentence(JOB, Tick(at_us=0), AFTER)
    assert said.loud
    happened, means, do = said.text.split("\n")
    assert happened == (
        "rank 1 (m2) differs from ranks 0,2 after step 30 in model.w, scheduler; "
        "after step 10 they were equal."
    )
    assert "Silent corruption" in means
    assert "Steps 11 to 30" in means
    assert "trainmover move m2" in do
    assert "checkpoint of step 10 or before" in do
    assert sentence(AFTER, Tick(at_us=0), AFTER).text == ""


def test_of_two_both_machines_are_named() -> None:
    text = divergence_text(UNKNOWN, JOB)
    assert text.startswith("ranks 0-1 differ from each other after step 30 in model.w")
    assert "Look at the memory of m1, m2: one of the machines" in text
    assert "move" not in text


def test_buffers_go_with_the_rank_so_a_move_does_not_mend_them() -> None:
    text = divergence_text(replace(FOUND, paths=((), ("model.table",), ())), JOB)
    assert "Look at the memory of m2: the machine cannot be trusted" in text


def test_if_it_is_replaced_it_says_so() -> None:
    spec = msgspec.structs.replace(JOB.spec, on_divergence="replace")
    assert "A standby takes its place once it is warm" in divergence_text(
        FOUND, replace(JOB, spec=spec)
    )


def test_of_many_tensors_the_first_are_named() -> None:
    many = replace(FOUND, paths=(tuple(f"w{i}" for i in range(9)), (), ()))
    assert "in w0, w1, w2 and 6 more;" in divergence_text(many, JOB)


@pytest.mark.parametrize(("job", "shown"), [(AFTER, True), (JOB, False)], ids=["yes", "not yet"])
def test_status_shows_replicas_their_cost_and_divergences(job: Job, shown: bool) -> None:
    status = snapshot(job, Progress(), {}, 0) | {"journal": {"unwritten": 0}}
    msgspec.json.encode(status)
    out = io.StringIO()
    show(status, Terminal(file=out, soft_wrap=True))
    line = "same state after step 30: 0-2  differs: 1  (2.0 MB in 1.5 ms)"
    assert (line in out.getvalue(), "rank 1 (m2) differs" in out.getvalue()) == (shown, shown)
    if shown:
        (divergence,) = status["divergences"]
        assert (divergence["diverged"], divergence["paths"]) == ([1], ["model.w", "scheduler"])
