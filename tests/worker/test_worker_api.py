"""The script's view of a job of its own, and of whatever runtime the worker puts behind it."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from torch import nn

import trainmover as tm
from trainmover.errors import UserError
from trainmover.worker import api


@pytest.fixture(autouse=True)
def fresh_run(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As at the start of a script: nothing is attached."""
    for name in ("RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(api, "_on_attach", None)
    api.serve(None)
    yield
    api.serve(None)


def test_a_job_of_its_own_is_rank_0_of_1() -> None:
    job = tm.attach()
    assert (job.rank, job.world_size, job.steps, job.is_shadow) == (0, 1, 0, False)


def test_under_torchrun_rank_and_world_size_are_its(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("WORLD_SIZE", "8")
    job = tm.attach()
    assert (job.rank, job.world_size) == (3, 8)


def test_one_run_of_a_script_has_one_job() -> None:
    assert not api.attached()
    job = tm.attach()
    assert api.attached()
    assert tm.attach() is job
    api.serve(None)
    assert tm.attach() is not job


def test_the_worker_hears_of_the_first_attach_only() -> None:
    heard: list[str] = []
    api.on_attach(lambda: heard.append("attached"))
    tm.attach(), tm.attach()
    assert heard == ["attached"]


def test_a_step_passes_arguments_and_result_through_and_counts() -> None:
    job = tm.attach()

    @job.step
    def add(a: int, *, b: int = 1) -> int:
        """Adds."""
        return a + b

    assert (add(2, b=3), add(4), job.steps) == (5, 5, 2)
    assert (add.__name__, add.__doc__) == ("add", "Adds.")


def test_inside_a_step_the_count_is_that_of_the_steps_before() -> None:
    job = tm.attach()
    model = nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    seen: list[int] = []

    @job.step
    def step() -> None:
        seen.append(job.steps)
        optimizer.step()
        seen.append(job.steps)

    for _ in range(2):
        step()
        seen.append(job.steps)
    assert seen == [0, 0, 1, 1, 1, 2]


def test_a_step_that_raises_behind_its_update_counts_as_in_a_job() -> None:
    job = tm.attach()
    optimizer = torch.optim.SGD(nn.Linear(1, 1).parameters())

    @job.step
    def step(*, updates: bool) -> None:
        if updates:
            optimizer.step()
        raise LookupError

    for updates, steps in ((False, 0), (True, 1), (False, 1)):
        with pytest.raises(LookupError):
            step(updates=updates)
        assert job.steps == steps


def test_a_step_that_raises_is_not_counted() -> None:
    job = tm.attach()

    @job.step
    def fail() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        fail()
    assert job.steps == 0


@pytest.mark.parametrize(
    ("loader", "passes", "expected"),
    [
        (range(3), 1, [0, 1, 2]),
        ([5, 6], 2, [5, 6, 5, 6]),
        (range(10, 0, -4), 1, [10, 6, 2]),
        (range(3), 0, []),
        ([], 1, []),
    ],
)
def test_batches_over_sequences(loader: Any, passes: int, expected: list[int]) -> None:
    batches = tm.attach().batches(loader, passes=passes)
    assert len(batches) == len(expected)  # type: ignore[arg-type]
    assert list(batches) == expected


def test_passes_without_end() -> None:
    batches = tm.attach().batches(range(2), passes=None)
    assert [next(batches) for _ in range(5)] == [0, 1, 0, 1, 0]
    with pytest.raises(TypeError):
        len(batches)  # type: ignore[arg-type]


def test_batches_may_be_left_in_the_middle_and_gone_on_with() -> None:
    batches = tm.attach().batches(range(5))
    first = [batch for batch, _ in zip(batches, range(2), strict=False)]
    assert first == [0, 1]
    assert list(batches) == [3, 4]  # zip drew one more before it stopped, as it always does.


def test_a_loader_whose_place_cannot_be_told_is_refused() -> None:
    with pytest.raises(UserError, match="cannot resume this loader"):
        tm.attach().batches(iter([1]))


def test_track_takes_what_has_state() -> None:
    model = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    tm.attach().track(model=model, optimizer=optimizer, scheduler=scheduler)


@pytest.mark.parametrize("thing", [3, {"a": 1}, torch.zeros(2), nn.Linear])
def test_track_refuses_what_has_none(thing: Any) -> None:
    with pytest.raises(UserError, match="`thing` cannot be tracked"):
        tm.attach().track(thing=thing)


def test_reports_of_a_job_of_its_own_go_nowhere_and_do_no_harm() -> None:
    tm.attach().report(loss=1.0, grads=torch.ones(()))


@pytest.mark.parametrize("value", [0.5, 1, torch.tensor(0.5), torch.tensor([[2]])])
def test_a_reported_value_is_a_number(value: Any) -> None:
    assert api.number("loss", value) == float(value)


def test_a_report_of_many_numbers_is_refused() -> None:
    with pytest.raises(UserError, match=r"report\(loss=...\) got a tensor of shape \(2,\)"):
        api.number("loss", torch.ones(2))


class Spy(api.Alone):
    """A runtime that notes what the script asked of it."""

    is_shadow = True

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[Any] = []

    def run_step(self, function: Any, args: Any, kwargs: Any) -> Any:
        self.asked.append((function.__name__, args, kwargs))

    def begin_loop(self, batches: Any) -> None:
        self.asked.append("loop")

    def fetch(self, batches: Any) -> Any:
        self.asked.append("fetch")
        return next(batches)

    def report(self, values: Any) -> None:
        self.asked.append(values)


def test_everything_goes_to_the_runtime_that_the_worker_serves() -> None:
    spy = Spy()
    api.serve(spy)
    job = tm.attach()
    job.step(max)(1, 2, key=abs)
    assert list(job.batches(range(1))) == [0]
    job.report(loss=0.5)
    assert spy.asked == [("max", (1, 2), {"key": abs}), "loop", "fetch", "fetch", {"loss": 0.5}]
    assert job.is_shadow


def test_a_batch_is_not_fetched_inside_a_step() -> None:
    job = tm.attach()
    batches = job.batches(range(3))
    with pytest.raises(UserError, match="fetched a batch"):
        job.step(lambda: next(batches))()
    assert next(batches) == 0


def test_nor_by_another_thread() -> None:
    batches = tm.attach().batches(range(3))
    with ThreadPoolExecutor(1) as pool, pytest.raises(UserError, match="thread of the script's"):
        pool.submit(next, batches).result()
    assert next(batches) == 0


def test_the_line_that_fetched_is_named() -> None:
    job = tm.attach()
    batches = job.batches(range(3))
    with pytest.raises(UserError, match=r"at test_worker_api.py line \d+"):
        job.step(lambda: next(batches))()


def test_who_calls_what_is_gone_is_told_what_to_call() -> None:
    with pytest.raises(UserError, match=r"enumerate\(job.batches"):
        tm.attach().enumerate(range(3))
    with pytest.raises(UserError, match=r"meter = Meter\(\)"):
        tm.attach().values(object(), "best")
    with pytest.raises(AttributeError, match="has no attribute 'counted'"):
        tm.attach().counted  # noqa: B018


@pytest.mark.parametrize("limits", [(3,), (2, 7), (9, 0, -4)])
def test_a_range_is_a_loop_for_scripts_without_loaders(limits: tuple[int, ...]) -> None:
    assert list(tm.attach().range(*limits)) == list(range(*limits))


def test_samples_cost_a_job_of_its_own_nothing() -> None:
    job = tm.attach()
    assert list(job.batches(range(3), 2, samples=True)) == [0, 1, 2, 0, 1, 2]
