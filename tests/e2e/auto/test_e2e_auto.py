"""Scripts that never name trainmover: losses at every point of a step, and moves, change no bit."""

from pathlib import Path

import pytest
from harness import Live, Outcomes, run

SCRIPTS = ["adversary", "ahead", "drawn", "plain", "sharded", "trainer"]
FAULTS = ["m2:compute:20:kill", "m2:gate:14:kill", "m2:passed:16:kill", "m2:fetch:13:kill"]


def train(name: str, *arguments: str, **others: object) -> Outcomes:
    script = str(Path(__file__).with_name(f"{name}.py"))
    return run([*arguments], script=script, **others)  # type: ignore[arg-type]


def lines(outcome: Outcomes) -> list[str]:
    """What it has printed; several lines may come as one text."""
    return "".join(outcome.printed).splitlines()


def assert_same(outcome: Outcomes, calm: Outcomes) -> None:
    """Steps that were made again have printed their lines again."""
    assert outcome.code == calm.code == 0, outcome.sentences
    assert outcome.rows == calm.rows
    assert outcome.digests == calm.digests
    assert {*lines(outcome)} == {*lines(calm)}


@pytest.mark.turns(4)
@pytest.mark.parametrize("name", SCRIPTS)
@pytest.mark.parametrize("fault", FAULTS)
def test_a_machine_is_lost(name: str, fault: str) -> None:
    calm = train(name, standbys=0)
    often = {"snapshot_every": 1} if name == "ahead" else {}
    outcome = train(name, drill=fault, **often)
    assert_same(outcome, calm)
    assert [one.machine for one in outcome.job.incidents if one.downtime_ms] == ["m2"]


@pytest.mark.turns(4)
@pytest.mark.parametrize("name", ["plain", "sharded"])
@pytest.mark.parametrize("fault", FAULTS)
def test_a_machine_of_two_ranks_is_lost(name: str, fault: str) -> None:
    size = {"machines": 2, "nproc": 2}
    assert_same(train(name, drill=fault, **size), train(name, standbys=0, **size))


@pytest.mark.turns(2)
@pytest.mark.parametrize("name", ["drawn", "plain"])
def test_a_machine_is_moved(name: str) -> None:
    async def move(live: Live) -> None:
        await live.holding()
        assert (await live.handle.move("m2")).ok
        await live.incidents_done(1)

    length = {"drawn": "150", "plain": "12"}[name]
    assert_same(train(name, length, scenario=move), train(name, length, standbys=0))


def test_without_it_such_a_script_runs_as_it_is_and_is_not_protected() -> None:
    served, plain = train("plain", standbys=0), train("plain", standbys=0, auto=False)
    assert (plain.code, plain.rows) == (0, {})
    assert lines(plain) == lines(served)
    assert {values.keys() == {"loss"} for values in served.rows.values()} == {True}
    assert any("recorded: model, optimizer; " in text for text in served.sentences)


def test_a_script_that_trains_in_no_loop_is_told_so(tmp_path: Path) -> None:
    script = tmp_path / "unrolled.py"
    script.write_text(
        "import torch\n"
        "model = torch.nn.Linear(2, 1)\n"
        "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "def once(n):\n"
        "    model(torch.ones(1, 2)).sum().backward()\n"
        "    optimizer.step()\n"
        "    n and once(n - 1)\n"
        "once(3)\n"
    )
    outcome = run([], script=str(script), standbys=0)
    assert outcome.code == 0
    told = [text for text in outcome.sentences if "trains in no loop" in text]
    assert len(told) == 1, outcome.sentences
