"""A script that begins from its own snapshot has no standby, and the reason says which file."""

from pathlib import Path

import pytest
from harness import Live, run

pytestmark = pytest.mark.turns(12)

CONTINUES = str(Path(__file__).parents[1] / "scripts" / "continues.py")


def test_the_file_is_named_before_any_incident(tmp_path: Path) -> None:
    snapshot, done = tmp_path / "snapshot.pt", tmp_path / "done"

    async def scenario(live: Live) -> None:
        await live.at_step(8)
        await live.until(lambda: bool(live.sandbox_failed))
        done.touch()

    arguments = ["--snapshot", str(snapshot), "--steps", "100000", "--until", str(done)]
    outcome = run(arguments, scenario, machines=2, script=CONTINUES)
    assert outcome.code == 0, outcome.text
    assert outcome.job.incidents == ()
    told = [text for text in outcome.sentences if str(snapshot) in text]
    assert told, outcome.sentences
    assert "(continues.py line 31), which was written since the job began" in told[0]
