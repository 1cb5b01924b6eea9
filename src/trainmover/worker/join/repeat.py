# SPDX-License-Identifier: Apache-2.0
"""Whether a step that is run again gives the same numbers.

Where a machine is lost within a step, all others run that step again, on what was put back: the
tracked state, and the graph of what the script holds. A script may keep something where no graph
reaches: in an object of a C library. So the last step of a run in the sandbox is made twice: up to
its gate, then all is put back, then from the beginning. The graph must be the same at both
beginnings, the random numbers and the gradients at both gates. Collectives give the same both
times.

What is found keeps the machine from being a standby: a job that goes on with it would train on with
other numbers, and nobody would see it.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from torch import Tensor
from torch.optim.optimizer import register_optimizer_step_pre_hook

from trainmover.comm import groups
from trainmover.errors import StateMismatch
from trainmover.loops.turns import Retry
from trainmover.sandbox.replayer import Replayer
from trainmover.state import rng, tensor_bytes
from trainmover.state.encode import as_local
from trainmover.state.proof.digest import hashes_of
from trainmover.torch_internals.modules import parameters_in
from trainmover.worker.join.refusal import Refusal
from trainmover.worker.member import Member
from trainmover.worker.step.before import Before
from trainmover.worker.step.changes import watched
from trainmover.worker.step.reported import code_of, place_of_step


class Repeat:
    """Of one run in the sandbox. Main thread only."""

    def __init__(self, member: Member, replayer: Replayer, refusal: Refusal) -> None:
        self._makes_groups = False  # Steps do, which would have other numbers the second time.
        self._member, self._replayer, self._refusal = member, replayer, refusal
        self._now: dict[str, object] = {}  # At the gate of the try under way.
        self._first: dict[str, object] = {}
        self._step = ""
        self._groups = 0

    @property
    def is_possible(self) -> bool:
        """Whether a step can be made twice here. What FSDP2 gathers depends on what it had gathered
        before, and no record has the calls of a second try."""
        return not self._makes_groups and not self._member.tracked.unsharded

    def begin_step(self) -> None:
        """A step of the sandbox is called."""
        self._groups = groups.roster.mark()

    def end_step(self) -> None:
        """It has returned. Raises StateMismatch if it was made twice, and not with the same."""
        self._makes_groups |= groups.roster.mark() != self._groups
        first, self._first = self._first, {}
        now, self._now = self._now, {}
        for what, before in first.items():
            if what in now and now[what] != before:
                self._refusal.not_again(self._step, f"{what} differ", "")

    @contextmanager
    def looking(self) -> Iterator[None]:
        """The try that counts: what it has come to at its first update."""
        if not self._first:
            yield
            return
        hook = register_optimizer_step_pre_hook(lambda *_: self._look())
        try:
            yield
        finally:
            hook.remove()
        self._look()  # Of a step without an update.

    def _look(self) -> None:
        if self._now:
            return
        self._now["the random numbers that it has drawn"] = rng.capture()
        for name, parameter in self._trained():
            gradient = parameter.grad
            if type(gradient) is Tensor and gradient.is_cpu and tensor_bytes.is_plain(gradient):
                (self._now[f"gradients of `{name}`"],) = hashes_of([gradient])

    def make_once(
        self, function: Callable[..., Any], args: Any, kwargs: Any, frame: FrameType
    ) -> None:
        """The step up to its gate; then all is put back. Raises StateMismatch if something that the
        script can reach is not.

        frame: the script's, that calls the step
        """
        member, tracked = self._member, self._member.tracked
        code = code_of(function)
        self._step = f"{getattr(code, 'co_name', 'the step')}{place_of_step(code)}"
        member.script_graph.begin_step(frame, [args, kwargs])
        before = Before.take(tracked)
        gradients = [(one, one.grad, _copy_of(one.grad)) for _, one in self._trained()]
        updates = member.updates.count
        bulk = self._hashes()
        member.reported.begin(function)
        comes = self._comes_to_gate(function, args, kwargs)
        member.updates.break_off(updates)
        self._replayer.repeat_step()
        is_early = self._hashes() != bulk  # All ranks would go back to a snapshot.
        changed = before.why_not()
        try:
            before.restore(tracked)
        except StateMismatch as error:
            changed = changed or error.happened
        changed = member.script_graph.put_back(frame) or changed
        for parameter, gradient, copy in gradients:
            parameter.grad = gradient
            if gradient is not None and copy is not None:
                gradient.detach().copy_(copy)
        self._first, self._now = self._now if comes and not is_early else {}, {}
        if changed:  # A step that is run again would end with that: it is no secret.
            self._first = {}

    def _comes_to_gate(self, function: Callable[..., Any], args: Any, kwargs: Any) -> bool:
        member = self._member
        member.in_step, member.passed = True, False
        hook = register_optimizer_step_pre_hook(_stop)
        try:
            function(*args, **kwargs)
        except Retry:
            pass
        except (Exception, SystemExit):  # noqa: BLE001 - the try that counts raises it, too.
            return False
        finally:
            hook.remove()
            member.in_step = False
        self._look()
        return True

    def _hashes(self) -> list[bytes]:
        bulk = [as_local(one.detach()) for _, one in watched(self._member.tracked)]
        return hashes_of([one for one in bulk if tensor_bytes.is_plain(one)])

    def _trained(self) -> Iterator[tuple[str, Tensor]]:
        for module in self._member.tracked.modules:
            found = parameters_in(module).items()
            yield from ((name, one) for name, one in found if one is not None)


def _stop(*_: object) -> None:
    """At the first update: as if a machine were lost."""
    raise Retry


def _copy_of(gradient: Tensor | None) -> Tensor | None:
    """In host memory: an accelerator's has no room for it."""
    return None if gradient is None else gradient.detach().to("cpu", copy=True)
