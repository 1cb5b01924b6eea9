"""A script writes its files without a question, and a machine that may take its rank harms none."""

import signal
from pathlib import Path

import torch
from harness import Live, run

KIT = Path(__file__).parents[1] / "scripts" / "kit.py"
SCRIPT = """
import shutil
import sys
from pathlib import Path

import kit
import torch

folder = Path(sys.argv.pop())
job, args = kit.begin()
model = kit.replicated(job, kit.network())
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
job.track(model=model, optimizer=optimizer)
if job.rank == 0:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    log = open(folder / "log.csv", "w", buffering=1)
    print("step", file=log)


@job.step
def train_step(x, y):
    kit.pace(job, args)
    loss = kit.error(model, x, y)
    loss.backward()
    job.report(loss=loss)
    optimizer.step()
    optimizer.zero_grad()


for x, y in kit.until(job, args, job.batches(kit.loader(job), passes=None)):
    train_step(x, y)
    if job.rank == 0:
        print(job.steps, file=log)
        with open(folder / "steps.txt", "a") as file:
            file.write(f"{job.steps}\\n")
        torch.save(job.steps, folder / "last.pt")
"""


def test_what_the_job_has_written_stays(tmp_path: Path) -> None:
    script, folder = tmp_path / "script.py", tmp_path / "out"
    script.write_text(SCRIPT)
    (tmp_path / "kit.py").symlink_to(KIT)

    async def scenario(live: Live) -> None:
        await live.warm()
        await live.holding()
        live.signal_worker("m1", signal.SIGKILL)
        await live.incidents_done(1)
        await live.at_step(live.step() + 10)

    arguments = ["--pace", "0.02", "--steps", "400", str(folder)]
    outcome = run(arguments, scenario, machines=2, script=str(script))
    assert outcome.code == 0, outcome.text
    last = max(step for _, step in outcome.rows)
    header, *logged = (folder / "log.csv").read_text().splitlines()
    assert header == "step"
    for written in (logged, (folder / "steps.txt").read_text().splitlines()):
        steps = {int(line) for line in written}
        assert steps <= {*range(1, last + 1)}
        assert len(steps) >= last - 1, "but for the step behind which the rank was lost"
    assert torch.load(folder / "last.pt") == last
    assert sorted(path.name for path in folder.iterdir()) == ["last.pt", "log.csv", "steps.txt"]
