"""Jobs over NCCL on one GPU, moved, and killed in every place of a step: the calm run's bits."""

from pathlib import Path

import pytest
from harness import Live, Outcomes, assert_equal_runs, run
from one_gpu import ON_GPU, SETTINGS

from trainmover.communicators import NCCL

pytestmark = [ON_GPU, pytest.mark.timeout(480)]
SCRIPTS = Path(__file__).parents[1] / "e2e" / "parallel"
KILLS = (
    "m1:compute:{0}:kill,m2:gate:{1}:sleep=0.3,m2:gate:{1}:kill,m3:passed:{2}:kill,"
    "m4:updated:{3}:kill"
)
JOBS = {"replicated": (3, 200), "compiled": (3, 30), "fsdp2": (4, 30), "hsdp": (4, 30)}
MEMORY_MORE = 64 << 20
jobs = pytest.mark.parametrize("script", JOBS)


@pytest.fixture(autouse=True)
def _one_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {**SETTINGS, "ONE_GPU": "1"}.items():
        monkeypatch.setenv(name, value)


def on_gpu(
    script: str, scenario: object = None, pace: float = 0.0, peaks: str = "", **options: object
) -> Outcomes:
    machines, steps = JOBS[script]
    arguments = ["--steps", str(steps), "--device", "cuda", "--backend", "nccl"]
    arguments += ["--pace", str(pace), "--peaks", peaks]
    path = str(SCRIPTS / f"{script}.py")
    given: dict[str, object] = {"machines": machines, "script": path, "gpu_comm": NCCL, **options}
    return run(arguments, scenario, **given)  # type: ignore[arg-type]


@jobs
def test_kills(script: str) -> None:
    steps = JOBS[script][1]
    drill = KILLS.format(steps // 5, 2 * steps // 5, 3 * steps // 5, 4 * steps // 5)
    outcome = on_gpu(script, pace=0.05, standbys=4, drill=drill)
    assert len(outcome.job.incidents) >= 4, outcome.sentences
    assert_equal_runs(outcome, on_gpu(script, standbys=0))


@jobs
def test_moves(script: str, tmp_path: Path) -> None:
    """Of the GPU torch takes no more in processes that stay than it takes in peace."""

    async def scenario(live: Live) -> None:
        await live.warm(1)
        answer = await live.handle.move("m1")
        assert answer.ok, answer.text
        await live.incidents_done(1)

    moved, calm = tmp_path / "moved", tmp_path / "calm"
    moved.mkdir()
    calm.mkdir()
    outcome = on_gpu(script, scenario, pace=0.5, standbys=1, peaks=str(moved))
    [incident] = outcome.job.incidents
    assert incident.rung == 0, outcome.sentences
    [certificate] = incident.certificates
    assert certificate.direct > 0.9 * certificate.bytes, outcome.sentences
    assert_equal_runs(outcome, on_gpu(script, standbys=0, peaks=str(calm)))
    for rank in range(1, JOBS[script][0]):
        peak, before = (int((folder / f"rank-{rank}").read_text()) for folder in (moved, calm))
        assert peak <= before + MEMORY_MORE
