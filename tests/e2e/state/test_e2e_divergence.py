"""One bit flips in one rank's memory: rank, tensor and step are named, and its machine replaced."""

from pathlib import Path

import pytest
from harness import Live, run

from trainmover.controller.state import Outcome

pytestmark = pytest.mark.turns(12)


def test_a_flipped_bit_is_found_named_and_healed_from_the_others(tmp_path: Path) -> None:
    hurry = tmp_path / "hurry"

    async def scenario(live: Live) -> None:
        await live.incidents_done(1)
        done = live.step()
        await live.until(lambda: live.job.comparison.step > done)
        hurry.touch()

    arguments = ["--steps", "400", "--pace", "0.03", "--misbehave", "flip", "--hurry", str(hurry)]
    outcome = run(arguments, scenario, machines=4, on_divergence="replace", fingerprint_every=20)
    assert outcome.code == 0, outcome.text
    (divergence,) = outcome.job.comparison.divergences
    assert (divergence.diverged, divergence.machines) == ((1,), ("m2",))
    assert (divergence.since, divergence.step) == (10, 20)
    assert divergence.paths == (("model.module.4.weight",), (), ())
    said = "rank 1 (m2) differs from ranks 0,2,3 after step 20 in model.module.4.weight;"
    assert any(said in sentence for sentence in outcome.sentences), outcome.sentences
    (incident,) = outcome.job.incidents
    assert (incident.machine, incident.outcome) == ("m2", Outcome.DONE)
    assert [(c.rank, c.source_rank != 1, c.equal) for c in incident.certificates] == [
        (1, True, True)
    ]
    assert outcome.job.comparison.diverged == frozenset()
    assert set(outcome.job.comparison.families.values()) == {0}
