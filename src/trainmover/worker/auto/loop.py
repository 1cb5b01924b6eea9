# SPDX-License-Identifier: Apache-2.0
"""Training loop of a script that never names trainmover: a turn of it is a step.

    first update   the loop around it, in whose turn its backward pass was made too, is the training
                   loop from now on; models and optimizers are looked for. The update counts for
                   none: a machine that is lost before the next turn starts the script again
    turn           behind an update, as the loop is about to ask for its next item: the step is
                   over, and the next one begins. Without one the step goes on (accumulation)
    update         the gate: see `member.py`
    abort          the exception ends in the loop that the step began in: what the script held then
                   is put back, iterators included, and the loop asks again

What is behind the gate, and what lies between two loops, is run once; who is lost there takes all
back to a snapshot. So does an abort that the loop's own frame does not see.
"""

import sys
from collections.abc import Callable, Mapping
from types import CodeType, FrameType
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.optim import Optimizer

from trainmover.errors import Unwind
from trainmover.graph.frames import innermost, script_frames
from trainmover.graph.kinds import kind_for
from trainmover.graph.nodes import type_name
from trainmover.loops.iterators import Enumerate, Map, Zip
from trainmover.loops.place import active_loops, frame_of, loop_at
from trainmover.loops.turns import AnyLoop, Retry, set_hooks, set_way_back
from trainmover.sandbox.process.modules import is_own_file
from trainmover.worker import api
from trainmover.worker.auto import loaders
from trainmover.worker.auto.found import found
from trainmover.worker.data.batches import Batches
from trainmover.worker.member import LiveStep, Member
from trainmover.worker.step.given import LOSS


class ShadowSteps(Protocol):
    """Steps of a run in the sandbox; see `Shadow`."""

    def enter_step(self, function: Any) -> None: ...
    def leave_step(self) -> None: ...


class Site:
    """Training loop in the script's text; stands for the function of a step.

    line  of its header
    """

    def __init__(self, code: CodeType, line: int) -> None:
        self.__code__, self.__qualname__, self.line = code, code.co_qualname, line


class Turns(Batches):
    """The turns of training loops, as batches of a source without end: their place is a number."""

    def __init__(self) -> None:
        super().__init__((), None)

    def __next__(self) -> int:
        self.drawn += 1
        return self.drawn

    def position(self) -> dict[str, Any]:
        return {"pass": 0, "drawn": self.drawn, "taken": self.drawn}

    def resume(self, position: dict[str, Any]) -> None:
        self.drawn = position["drawn"]

    def stand_in(self) -> int:
        return next(self)


class Auto:
    """Of one run of the script. Main thread only.

    runtime  the member, or the joiner that becomes it
    shadow   its steps in the sandbox
    warn     tells people, once, that the script trains in no loop
    """

    def __init__(
        self,
        member: Member,
        runtime: api.Runtime,
        shadow: ShadowSteps | None,
        warn: Callable[[], None],
    ) -> None:
        self._member, self._runtime, self._shadow, self._warn = member, runtime, shadow, warn
        self._sites: dict[tuple[CodeType, int], Site] = {}
        self._turns = Turns()
        self._at_backward: set[tuple[int, int]] = set()
        self._known: list[object] = []
        self._loop = 0  # The id of the loop that the step under way began in; 0: none is.
        self._site: Site | None = None
        self._frame: FrameType | None = None
        self._step: LiveStep | None = None
        self._in_shadow = False
        self._aborted = self._unwinds = False
        self._line = 0  # Of that loop's header.
        self._is_over = False

    def begin(self) -> None:
        """The script begins."""
        set_hooks(begin=self._begins, turn=self._turn, left=self._left)
        set_way_back(self._goes_on, self._ends_turn)
        loaders.switch(on=True, tell=self._member.script_graph.is_without_place)

    def attached(self) -> None:
        """The script has attached: if it did so itself, it says itself what its steps are."""
        if not self._sites:
            self.end()

    def end(self) -> None:
        """The script is over, or needs none of this."""
        self._is_over = True
        set_hooks()
        loaders.switch(on=False)

    @property
    def _is_idle(self) -> bool:
        """Whether the script says itself what its steps are."""
        return self._is_over or (api.attached() and not self._sites)

    # --- which loop it is -------------------------------------------------------------------------

    def before_backward(self, tensors: Any) -> None:
        """A backward pass begins. tensors: from which"""
        if self._is_idle:
            return
        if not self._loop:
            active = active_loops(innermost(sys._getframe(1)))
            self._at_backward = {(id(one.loop), one.loop.turn_count) for one in active}
        elif self._reports(tensors):
            self._runtime.report({LOSS: tensors})

    def _reports(self, tensors: Any) -> bool:
        """Whether these are the step's loss: the number that its first backward pass begins from,
        which comes out again where the step is made again."""
        member = self._member
        is_first = member.in_step and not member.passed and LOSS not in member.reported.values
        return is_first and _is_number(tensors)

    def before_update(self, optimizer: Optimizer) -> None:
        """An update is about to be made."""
        if self._is_idle:
            return
        if not self._loop:
            self._look_for_loop()
        elif self._in_shadow:
            self._member.updated = True
        if self._sites and not any(one is optimizer for one in self._known):
            self._find(innermost(sys._getframe(1)))
            self._track({f"optimizer {len(self._known)}": optimizer})

    def _look_for_loop(self) -> None:
        active = active_loops(innermost(sys._getframe(1)))
        inside = [one for one in active if (id(one.loop), one.loop.turn_count) in self._at_backward]
        training = (inside or active)[-1:]
        if not training:
            self._warn()
            return
        loop, line = training[0].loop, training[0].line
        frame = frame_of(loop, innermost(sys._getframe(1)))
        if frame is None:
            return
        is_first = not self._sites
        self._sites[frame.f_code, line] = Site(frame.f_code, line)
        loop.is_transaction = True
        if is_first:
            api.attach()
            self._runtime.begin_loop(self._turns)

    def _find(self, frame: FrameType) -> None:
        """Track models and optimizers that are not tracked yet: by the script's own names, or else
        by those of a library that runs its loop."""
        frames = script_frames(frame, vars(sys.modules["__main__"]))[::-1]
        own = [one for one in frames if is_own_file(one.f_code.co_filename)]
        self._track(found([names for one in own for names in (one.f_locals, one.f_globals)]))
        self._track(found([one.f_locals for one in frames if one not in own]))

    def _track(self, known: Mapping[str, object]) -> None:
        for path, one in known.items():
            if not any(one is known for known in self._known):
                self._known.append(one)
                self._runtime.tracked.add(path, one)

    def _begins(self, loop: AnyLoop) -> None:
        """A loop begins somewhere in the script."""
        if not self._sites:
            return
        frame = innermost(sys._getframe(1))
        if (frame.f_code, frame.f_lineno) in self._sites:
            loop.is_transaction = True

    # --- steps ------------------------------------------------------------------------------------

    def _turn(self, loop: AnyLoop) -> None:
        """A training loop is about to ask for its next item."""
        if self._is_over:
            return
        frame = innermost(sys._getframe(1))
        if self._loop:
            if self._unwinds:
                self._go_back(frame)
                return
            if self._goes_on_in_step(loop, frame):
                return
            self._end_step()
        self._begin_step(loop, frame)

    def _begin_step(self, loop: AnyLoop, frame: FrameType) -> None:
        loaders.forget_given()
        if source := without_place(getattr(loop, "iterator", None)):
            self._member.script_graph.is_without_place(source)
        active = [one for one in active_loops(frame) if one.loop is loop]
        line = active[0].line if active else frame.f_lineno
        self._site = self._sites.setdefault((frame.f_code, line), Site(frame.f_code, line))
        self._frame, self._loop, self._line = frame, id(loop), line
        try:
            self._runtime.fetch(self._turns)
            self._enter(frame)
        except BaseException:
            self._loop = 0
            raise

    def _enter(self, frame: FrameType) -> None:
        member = self._member
        loaders.settle()
        self._aborted, self._in_shadow = False, member.is_shadow
        if self._in_shadow and self._shadow is not None:
            self._shadow.enter_step(self._site)
            return
        site: Any = self._site
        self._step = member.begin_step(site, frame, is_sure=False)
        member.enter_try(self._step)

    def _goes_on_in_step(self, loop: AnyLoop, frame: FrameType) -> bool:
        """Whether the step under way is not over: it has made no update, or is made again."""
        member = self._member
        if self._in_shadow:
            return not member.updated
        if member.passed:
            return False
        assert self._step is not None
        try:
            if member.gate.at_return and member.updates.any_in_step:
                member.pass_gate(returned=True)
                return False
            if not self._aborted:
                if not member.boundary.tainted():
                    return True
                member.await_abort(self._step.number)
        except Retry:
            if id(loop) != self._loop:
                raise
        self._again(frame)
        return True

    def _again(self, frame: FrameType) -> None:
        """Put back what the aborted step has changed, and begin it once more."""
        member, step = self._member, self._step
        assert step is not None
        member.leave_try()
        self._aborted = False
        try:
            member.begin_again(step)
        except Unwind:
            self._go_back(frame)
            return
        loaders.settle()
        member.enter_try(step)

    def _go_back(self, frame: FrameType) -> None:
        """All ranks go back to a snapshot: this one in place, or by another run of the script."""
        member, self._unwinds = self._member, False
        if member.in_step:
            member.leave_try()
        if member.rollback is None or not member.rollback.go_back(frame):
            raise Unwind
        member.take_next(self._turns)
        self._enter(frame)

    def _end_step(self) -> None:
        self._loop = 0
        if self._in_shadow:
            assert self._shadow is not None
            self._shadow.leave_step()
            return
        assert self._step is not None
        step, self._step = self._step, None
        self._member.leave_try()
        if self._member.passed:
            self._member.end_step(step)
        else:
            self._member.make_none(step)

    def _left(self, line: int) -> None:
        """The script has left a loop. line: of its header"""
        if not self._loop or line != self._line:
            return
        if innermost(sys._getframe(1)) is not self._frame:
            return
        if isinstance(sys.exception(), Unwind | Retry) and not self._in_shadow:
            self._loop, self._step = 0, None
            self._member.leave_try()
            return
        self._end_step()

    # --- where an exception ends ------------------------------------------------------------------

    def _ends_turn(self) -> tuple[type[BaseException], ...]:
        """Exceptions behind which a loop may go on: of drained data any may come."""
        member = self._member
        misled = self._step is not None and member.in_step and member.may_be_misled
        return (Unwind, Retry, Exception) if misled else (Unwind, Retry)

    def _goes_on(self, frame: FrameType, line: int) -> bool:
        """Whether the loop with its header on this line goes on behind the exception."""
        error, rollback = sys.exception(), self._member.rollback
        if not self._sites:
            is_ours = isinstance(error, Unwind) and rollback is not None
            return is_ours and rollback.goes_on(frame, line)  # type: ignore[union-attr]
        loop = loop_at(frame, line)
        if self._step is None or loop is None or id(loop) != self._loop:
            return False
        if isinstance(error, Unwind):
            self._unwinds = rollback is not None and rollback.is_due
            return self._unwinds
        self._aborted = isinstance(error, Retry)
        return True


def without_place(iterator: Any) -> str:
    """Return what a loop iterates over if its place cannot be told, as of an iterator in C that
    shows nothing; "": it can."""
    if isinstance(iterator, Enumerate):
        return without_place(iterator.iterator)
    if isinstance(iterator, Zip | Map):
        return next(filter(None, map(without_place, iterator.iterators)), "")
    is_opaque = iterator is not None and kind_for(iterator).name == "opaque"
    return f"how far a {type_name(type(iterator))} is in its training loop" if is_opaque else ""


def _is_number(tensors: Any) -> bool:
    return isinstance(tensors, Tensor) and tensors.numel() == 1 and tensors.is_floating_point()


def watch_backward(call: Callable[[Any], None]) -> None:
    """Call this with what each backward pass begins from."""
    plain = torch.autograd.backward

    def backward(tensors: Any, *args: Any, **kwargs: Any) -> Any:
        call(tensors)
        return plain(tensors, *args, **kwargs)

    torch.autograd.backward = backward
