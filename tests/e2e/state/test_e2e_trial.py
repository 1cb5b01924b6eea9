"""A standby tries the way to where its rank has come, and what the job writes stays what it was."""

from pathlib import Path

import numpy
from harness import Live, run

KIT = Path(__file__).parents[1] / "scripts" / "kit.py"
FAR_STEPS = 40  # far enough: no rank reads that it is the last after it has gone by
SCRIPT = """
import sys
from pathlib import Path

import kit
import numpy
import torch

folder = Path(sys.argv.pop())
job, args = kit.begin()
model = kit.replicated(job, kit.network())
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
job.track(model=model, optimizer=optimizer)
tried = numpy.memmap(folder / "tried", dtype="u1", mode="r+")
last = folder / "last"


@job.step
def train_step(x, y):
    kit.pace(job, args)
    loss = kit.error(model, x, y)
    loss.backward()
    job.report(loss=loss)
    optimizer.step()
    optimizer.zero_grad()


passes = 0
while job.steps < (1 if job.is_shadow else int(last.read_text() or args.steps)):
    for x, y in job.batches(kit.loader(job, kit.dataset(96))):
        train_step(x, y)
    passes += 1
    print("pass", passes)
    tried[job.rank] += job.is_shadow
    if job.rank == 0:
        torch.save(model.state_dict(), folder / "model.pt")
        with open(folder / "log.txt", "a") as log:
            log.write(f"{passes}\\n")
"""


def test_a_trial_leaves_no_traces(tmp_path: Path) -> None:
    script, tried, last = (tmp_path / name for name in ("script.py", "tried", "last"))
    script.write_text(SCRIPT)
    (tmp_path / "kit.py").symlink_to(KIT)
    tried.write_bytes(bytes(2))
    last.touch()

    async def scenario(live: Live) -> None:
        await live.until(lambda: tried.read_bytes()[0] > 0)
        await live.holding()
        last.write_text(str(live.step() + FAR_STEPS))

    arguments = ["--pace", "0.01", "--steps", "10000", str(tmp_path)]
    outcome = run(arguments, scenario, machines=2, script=str(script))
    assert outcome.code == 0, outcome.text
    lines = (tmp_path / "log.txt").read_text().split()
    assert lines == [str(number) for number in range(1, len(lines) + 1)]
    said = [line for text in outcome.printed for line in text.splitlines() if "pass" in line]
    assert said == [f"pass {number}" for number in lines]
    assert len(lines) == max(step for _, step in outcome.rows) // 6
    assert not outcome.job.incidents
    assert any(numpy.frombuffer(tried.read_bytes(), "u1"))
