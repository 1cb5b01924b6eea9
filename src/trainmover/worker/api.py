# SPDX-License-Identifier: Apache-2.0
"""What a script says to trainmover: my state, my step, my batches.

Under plain python or torchrun `attach()` gives a job of its own: everything works, nothing is
protected. Under `trainmover run` the same script runs as one rank of a job whose machines can be
replaced.
"""

import functools
import os
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar

from torch import Tensor
from torch.optim.optimizer import register_optimizer_step_pre_hook

from trainmover.errors import UserError
from trainmover.state.tracked import Tracked
from trainmover.worker.data.batches import Batches
from trainmover.worker.data.samples import Samples

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


class Runtime(Protocol):
    """What stands behind a `Job`: nothing (a job of its own), a member of a larger one, or a joiner
    that becomes one.

    declared  what the script is about that may take long, by its own word; the innermost last
    """

    @property
    def tracked(self) -> Tracked: ...
    @property
    def rank(self) -> int: ...
    @property
    def world_size(self) -> int: ...
    @property
    def steps(self) -> int: ...
    @property
    def is_shadow(self) -> bool: ...
    @property
    def in_step(self) -> bool: ...
    @property
    def declared(self) -> list[str]: ...

    def run_step(self, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Run one step as a transaction."""

    def begin_loop(self, batches: Batches) -> None:
        """A loop over data begins."""

    def fetch(self, batches: Batches) -> Any:
        """The next batch; raises StopIteration at the end."""

    def report(self, values: dict[str, float | Tensor]) -> None:
        """Values that commit with the step."""


_GONE = {
    "enumerate": (
        "Python's own enumerate counts on after a move or a loss, too.",
        "Write enumerate(job.batches(loader)).",
    ),
    "values": (
        "What the script's objects hold goes along with its rank by itself.",
        "Leave the call out: meter = Meter().",
    ),
}
"""Methods that no script needs any more: what is so instead, and what to write."""


class Job:
    """The running script's view of its job. Get it from `attach()`."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            if name not in _GONE:
                raise AttributeError(f"'Job' has no attribute {name!r}", name=name)
            means, do = _GONE[name]
            raise UserError(f"job.{name} is gone.", means=means, do=do)

    @property
    def rank(self) -> int:
        """This process's rank, 0 <= rank < world_size. A moved rank keeps it."""
        return self._runtime.rank

    @property
    def world_size(self) -> int:
        """Ranks in the job. Never changes."""
        return self._runtime.world_size

    @property
    def steps(self) -> int:
        """Steps committed so far, by the whole life of the job."""
        return self._runtime.steps

    @property
    def is_shadow(self) -> bool:
        """Whether this is a shadow run in the sandbox: write no files, log nothing."""
        return self._runtime.is_shadow

    def track(self, **objects: Any) -> None:
        """Name what must survive a machine: anything with state_dict and load_state_dict, and
        generators of random numbers (torch's, numpy's, Python's).

        Change state that only one rank has before `optimizer.step()`: what a step changes after
        that is known elsewhere only if another rank holds the same. A name used again stands for
        the new object. Raises UserError for an object without them.
        """
        for name, tracked in objects.items():
            self._runtime.tracked.add(name, tracked)

    def step(self, function: Callable[P, R]) -> Callable[P, R]:
        """Decorator: one call of `function` is one transaction.

        It commits at the first `optimizer.step()` inside, or at its return if there is none. If a
        machine is lost before that, the function is run again with the same arguments, after all
        that the script holds is put back; if one is lost behind it, or if tracked state was changed
        before it, all ranks go back to a snapshot. It may raise; that ends the job.
        """

        @functools.wraps(function)
        def step(*args: P.args, **kwargs: P.kwargs) -> R:
            result: R = self._runtime.run_step(function, args, kwargs)
            return result

        return step

    def batches(
        self, loader: Any, passes: int | None = 1, *, samples: Samples = None
    ) -> Iterator[Any]:
        """Iterate `passes` data passes over `loader` (None: without end), resuming where the rank
        stood.

        loader   a DataLoader, a StatefulDataLoader, a sequence such as `range(1000)`, or an
                 iterable that gives the same each time it is begun
        samples  have the journal say which samples each committed step used (`trainmover data`):
                 True for the sampler's indices, or a function that gives a batch's ids
        What the script says to a sampler by `set_epoch` counts; only the passes of one call are
        numbered on from there. Raises UserError for a loader whose place cannot be described, such
        as an iterator.
        """
        return JobBatches(self._runtime, Batches(loader, passes, samples))

    def range(self, *limits: int) -> Iterator[int]:
        """As `range`, for a loop over steps without a loader: `for step in job.range(1000)`.

        After a move, a loss or a resume it goes on where the rank stood.
        """
        return self.batches(range(*limits))

    def report(self, **values: float | Tensor) -> None:
        """Numbers of this step, for the job's record: they commit with it, exactly once.

        Call it inside a step, before `optimizer.step()`. values: floats or tensors of one element,
        at most 500 a step, with names of at most 100 characters; others are left out.
        """
        self._runtime.report(values)

    @contextmanager
    def pause_watch(self, what: str) -> Iterator[None]:
        """Within it this rank may stand still as long as it likes, and is not taken for stuck.

        For what takes far longer than a step: an evaluation, an upload. Its peers may wait for it
        meanwhile. what: one word or two, shown by `trainmover status`
        """
        declared = self._runtime.declared
        declared.append(what)
        try:
            yield
        finally:
            declared.remove(what)


class JobBatches:
    """Iterator behind `Job.batches`."""

    def __init__(self, runtime: Runtime, batches: Batches) -> None:
        self._runtime = runtime
        self._batches = batches
        self._thread = threading.current_thread()
        runtime.begin_loop(batches)

    def __iter__(self) -> "JobBatches":
        return self

    @property
    def drawn(self) -> int:
        """Batches taken in all passes, by the whole life of the loop."""
        return self._batches.drawn

    def __next__(self) -> Any:
        if threading.current_thread() is not self._thread:
            raise UserError(
                f"A thread of the script's own fetched a batch from job.batches(){_where()}.",
                means="What it holds in reserve could not be drawn again when a machine is lost.",
                do="Fetch in the thread that called job.batches; a DataLoader with workers, and "
                "pin_memory, loads ahead by itself.",
            )
        if self._runtime.in_step:
            raise UserError(
                f"A step fetched a batch from job.batches(){_where()}.",
                means="It could not be run again with the same batch.",
                do="Fetch a step's batches before it, and pass them as arguments. A step that goes "
                "through a whole loader, as an evaluation may, iterates over the loader itself.",
            )
        return self._runtime.fetch(self._batches)

    def __len__(self) -> int:
        return len(self._batches)


def _where() -> str:
    """The line of the script that is being executed."""
    for frame in reversed(traceback.extract_stack()):
        if not frame.filename.startswith(os.path.dirname(os.path.dirname(__file__)) + os.sep):
            return f" at {os.path.basename(frame.filename)} line {frame.lineno}"
    return ""


class Alone:
    """Runtime of a job of its own: under plain python, or a rank under torchrun."""

    is_shadow = False

    def __init__(self) -> None:
        self.tracked = Tracked()
        self.rank = int(os.environ.get("RANK", "0"))
        self.world_size = int(os.environ.get("WORLD_SIZE", "1"))
        self.steps = 0
        self.in_step = False
        self.declared: list[str] = []
        self._updated = False
        register_optimizer_step_pre_hook(self._note)

    def run_step(self, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Just run it; a step called within a step is part of it."""
        if self.in_step:
            return function(*args, **kwargs)
        self.in_step, self._updated = True, False
        try:
            result = function(*args, **kwargs)
        except (Exception, SystemExit):
            self.steps += self._updated  # As in a job: what has updated is a step.
            raise
        finally:
            self.in_step = False
        self.steps += 1
        return result

    def _note(self, *_: object) -> None:
        self._updated = True

    def begin_loop(self, batches: Batches) -> None:
        """Nobody resumes it."""

    def fetch(self, batches: Batches) -> Any:
        """The next batch."""
        return next(batches)

    def report(self, values: dict[str, float | Tensor]) -> None:
        """Nobody keeps them."""


_current: Job | None = None
_member: Runtime | None = None
_on_attach: Callable[[], None] | None = None


def attach() -> Job:
    """This process's job. Call it once per run of the script, before or after groups are made."""
    global _current
    if _current is None:
        _current = Job(_member if _member is not None else Alone())
        if _on_attach is not None:
            _on_attach()
    return _current


def serve(member: Runtime | None) -> None:
    """Used by the worker: what `attach()` is to give in the run of the script that begins now."""
    global _current, _member
    _current, _member = None, member


def on_attach(call: Callable[[], None]) -> None:
    """Used by the worker: call this when the script attaches."""
    global _on_attach
    _on_attach = call


def attached() -> bool:
    """Whether the script has called `attach()`."""
    return _current is not None


def number(name: str, value: float | Tensor) -> float:
    """A reported value as a float. Raises UserError if it has more than one element."""
    if isinstance(value, Tensor):
        if value.numel() != 1:
            raise UserError(
                f"report({name}=...) got a tensor of shape {tuple(value.shape)}.",
                means="The step cannot be committed with it.",
                do="Report one number per name, for instance loss.mean().",
            )
        return float(value.item())
    return float(value)
