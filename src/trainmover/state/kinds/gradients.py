# SPDX-License-Identifier: Apache-2.0
"""Gradients that lie on parameters between two steps, as state of their own.

Whether the next step reads them shows only when it is made: it may add to them (accumulation over
several calls, gradients that nobody ever clears), or clear them first, in which case their values
mean nothing. So what a step finds is noted as it begins, with version counters, and its gate tells
which it was:

    added to   the same tensor is still there and was written to. From then on the values of that
               parameter's gradient are state, also those that an update has consumed already
    cleared    another tensor, or none. Then only its presence counts, because an optimizer passes
               over parameters that have none; zeros stand for it
    read       by the script, before a step has cleared it: as if it were added to. No counter tells
               that: it is looked for behind the first steps, and behind one of many later
    neither    not touched (an evaluation): nothing was learnt
    unknown    neither was ever seen: kept as if it were added to

What a step finds and may add to is copied for a retry. In the record of a rank go up to 4 MiB of
values; more of them count as bulk state, from other ranks that hold the same or from a cut. Who
takes a rank, or makes a step again, and has made up zeros for values that are gone refuses the step
that adds to them, and whoever reads them.
"""

import weakref
from collections.abc import Callable, Iterable, Iterator, Set
from functools import partial
from typing import Any, NoReturn

import torch
from torch import Tensor, nn

from trainmover.asked import are, given
from trainmover.errors import StateMismatch
from trainmover.state.encode import as_local
from trainmover.state.tensor_bytes import size_of
from trainmover.torch_internals.tensors import GRADIENT, Noted, note_all, version_of
from trainmover.torch_internals.watching.gradients import end, plain, watch

BYTES_MAX = 4 * 1024 * 1024
"""Values up to this size go with every step's record, twice; more are bulk state."""
FIRST_WATCHED, WATCHED_EACH = 4, 61
"""Behind so many steps at first, and behind one of so many later, it is seen whether what they have
left is read."""
_GROUPS_KNOWN = 8
_NOBODY: frozenset[int] = frozenset()


class Gradients:
    """Of some parameters, as an object with the two state methods.

    parameters of one module; or those of one optimizer that lie in no tracked module
    consumers  parameters, by id, that some optimizer will update
    large      its values as bulk state, while they are too large for a record
    """

    def __init__(
        self, parameters: Iterable[nn.Parameter | Tensor], consumers: Callable[[], set[int]]
    ) -> None:
        self.large = LargeGradients(self)
        self._parameters = list(parameters)
        self._ids = frozenset(map(id, self._parameters))
        self._none: list[Noted | None] = [None] * len(self._parameters)
        self._consumed = _Consumed(self._ids)
        self._consumers = consumers
        self._added_to: set[int] = set()
        self._cleared: set[int] = set()
        self._spent: Set[int] = _NOBODY  # Parameters, by id, that were updated in this step.
        self._updating = False
        # Whether those that are consumed still lie there as the step ends, and if so as zeros.
        self._stay = self._stay_zero = False
        self._found: list[Noted | None] = []
        self._copies: dict[int, Tensor] = {}
        self._held: dict[int, Tensor] = {}  # Found ones of which nothing is known yet.
        self._noted: list[Noted | None] = []  # The same, until the end.
        self._made_up: set[int] = set()
        self._zeros: dict[int, Noted] = {}  # Seen to be nothing but zeros.
        self._lost = False
        self._watched: list[weakref.ref[Tensor]] = []
        self._steps_over = 0

    def is_of(self, parameters: Iterable[Tensor]) -> bool:
        """Whether it is of just these."""
        return are(list(parameters), self._parameters)

    @property
    def accumulate(self) -> bool:
        """Whether some step was seen to add to what it found, or to read it."""
        return bool(self._added_to)

    @property
    def kept_bytes(self) -> int:
        """Of gradients that steps add to, as far as some wait for the next one."""
        if not self._added_to:
            return 0
        waiting = [index for index in self._added_to if self._waits(index)]
        return sum(self._parameters[index].nbytes for index in waiting)

    def _waits(self, index: int) -> bool:
        parameter = self._parameters[index]
        return parameter.grad is not None and id(parameter) not in self._spent

    # --- one step ---------------------------------------------------------------------------------

    def begin_step(self) -> None:
        """A step starts: note what it finds, and copy what it may add to."""
        self._note()
        if self._found is self._none:
            self._copies = {}
            return
        settled = self._cleared - self._added_to
        wanted = [i for i, found in enumerate(self._found) if found and i not in settled]
        self._copies = {index: _copy_of(self._parameters[index]) for index in wanted}

    def begin_again(self) -> None:
        """It starts once more, with what it found put back."""
        self._note()

    def _note(self) -> None:
        self._spent, self._lost = _NOBODY, False
        if not any(given(GRADIENT, self._parameters)):
            self._found = self._noted = self._none
            self._held = {}
            return
        grads = [parameter.grad for parameter in self._parameters]
        self._found = note_all(grads)
        self._noted = self._found
        known = self._added_to | self._cleared
        self._held = (
            {}
            if len(known) == len(grads)
            else {i: g for i, g in enumerate(grads) if g is not None and i not in known}
        )

    def at_gate(self) -> None:
        """See what the step has done to what it found. Raises StateMismatch where it has added to
        zeros that stand for values which nobody has given this process."""
        found, self._found = self._found, []
        if found is self._none or not any(found):
            return
        # The usual case, told without a call: what was known to be cleared is there no more.
        grads = [parameter.grad for parameter in self._parameters]
        settled = () if self._made_up else self._cleared
        added = [
            index
            for index, (noted, now) in enumerate(zip(found, grads, strict=True))
            if noted
            and not (
                index in settled
                and (now is None or (noted[0]() is not now and now.grad_fn is None))
            )
            and self._is_added_to(index, *noted)
        ]
        self._held = {}
        consumers = self._consumers() if added else set()
        for index in added:
            if id(self._parameters[index]) in consumers:
                self._saw_added(index)

    def _is_added_to(self, index: int, reference: "weakref.ref[Tensor]", version: int) -> bool:
        """Whether this gradient was written to, and not just replaced."""
        now = self._parameters[index].grad
        if now is not None and reference() is now:
            return version_of(now) != version
        held = self._held.get(index)
        if held is not None and version_of(held) != version:
            return True  # And then replaced: DDP puts a view of a bucket in its place.
        if now is not None and now.grad_fn is not None:
            return True  # backward(create_graph=True) adds without writing in place.
        self._cleared.add(index)
        self._made_up.discard(index)
        return False

    def _saw_added(self, index: int) -> None:
        if index in self._made_up:
            raise StateMismatch(
                "A step has added to gradients of an earlier step, which this process was not "
                "given when it took the rank.",
                means="Its numbers would be others; the step does not count.",
                do="Clear gradients before each update's first backward(), or make all passes of "
                "one update in one function marked @job.step.",
            )
        copy = self._copies.get(index)
        if copy is None:
            self._lost = True
            self._added_to.add(index)
        elif index not in self._added_to and copy.any():  # Zeros are nothing to add to.
            self._added_to.add(index)

    def _saw_read(self, index: int) -> None:
        """Somebody reads values of an earlier step."""
        parameter = self._parameters[index]
        gradient = parameter.grad
        if index in self._added_to or gradient is None or not plain(gradient).any():
            return
        if id(parameter) in self._consumers():
            self._added_to.add(index)
            self._lost |= bool(self._found) and index not in self._copies

    def put_back(self) -> str:
        """An aborted step is to start again: make the gradients those that it found.

        Why that cannot be; "" if it is done.
        """
        self.at_gate()
        if self._lost:
            return (
                "a step was aborted that, for the first time, has added to gradients of an "
                "earlier step, or has read them"
            )
        with torch.no_grad():
            for index, noted in enumerate(self._noted):
                self._put_one_back(index, noted)
        return ""

    def _put_one_back(self, index: int, noted: Noted | None) -> None:
        parameter, copy = self._parameters[index], self._copies.get(index)
        now, found = parameter.grad, noted and noted[0]()
        if copy is not None:
            _put(parameter, copy, found)
        elif noted is None:
            parameter.grad = None
        elif now is None or found is not now or version_of(now) != noted[1]:
            self._make_up(index, found)

    def spend(self, parameters: Iterable[Tensor]) -> None:
        """An update is about to consume the gradients of these."""
        self._updating = True
        going = self._consumed.ids_of(parameters if type(parameters) is list else list(parameters))
        self._spent = self._spent | going if self._spent else going

    def end_step(self) -> None:
        """A step has returned, and is committed."""
        self._copies, self._found = {}, []
        self.returned()
        self._watch()

    def _watch(self) -> None:
        """What lies now, and was not seen to count."""
        for known in self._watched:
            end(known())
        self._watched, self._steps_over = [], self._steps_over + 1
        if self._steps_over > FIRST_WATCHED and self._steps_over % WATCHED_EACH:
            return
        for index in _ones(given(GRADIENT, self._parameters)):
            gradient = self._parameters[index].grad
            if gradient is not None and index not in self._added_to | self._made_up:
                watch(gradient, partial(self._saw_read, index))
                self._watched.append(weakref.ref(gradient))

    def returned(self) -> None:
        """A step has returned: what is left of those that it has consumed?"""
        if self._updating:
            self._updating = False
            lie = given(GRADIENT, self._parameters)
            left = [i for i in _ones(lie) if id(self._parameters[i]) in self._spent]
            self._stay = bool(left)
            self._stay_zero = self._stay and all(map(self._is_zero, left))

    # --- as state ---------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """{} if there are none, and none were ever added to.

        values    by index; of a sharded one the local part
        lies      a byte for each parameter: whether it has a gradient, of whatever value; at the
                  gate of an update, whether it will have one, as far as the step before tells
        zeros     of which values are known to be zeros, by index
        added_to  which were, by index
        large     whether there are more values than a record carries: they are bulk state
        stay      whether what an update has consumed stays, and if so as zeros
        """
        lies = self._lies()
        if not self._added_to and not any(lies):
            return {}
        values, zeros = self._values_at(lies), set(self._zeros)
        large = _size(values) > BYTES_MAX
        if self._updating and self._stay_zero:
            zeros |= {i for i, p in enumerate(self._parameters) if id(p) in self._spent}
            values = {i: value for i, value in values.items() if i not in zeros}
        return {
            "values": {} if large else values,
            "lies": lies,
            "zeros": sorted(index for index in zeros - values.keys() if lies[index]),
            "added_to": sorted(self._added_to),
            "large": large,
            "stay": [self._stay, self._stay_zero],
        }

    def _lies(self) -> bytes:
        going = self._spent
        if self._updating and not self._stay and (going is self._ids or going >= self._ids):
            return bytes(len(self._parameters))
        lie = given(GRADIENT, self._parameters)
        if not self._updating or self._stay:
            return lie
        of_each = zip(lie, self._parameters, strict=True)
        return bytes([lies and id(p) not in going for lies, p in of_each])

    def _values_at(self, lies: bytes) -> dict[int, Tensor]:
        """Those that count: all that are added to; and unknown ones, if a record can carry them."""
        known = {i: self._local(i) for i in sorted(self._added_to) if lies[i]}
        settled = self._cleared | self._added_to
        unknown = [i for i, lie in enumerate(lies) if lie and i not in settled]
        if not unknown:
            return known
        consumers = self._consumers()
        wanted = [i for i in unknown if id(self._parameters[i]) in consumers]
        more = {i: self._local(i) for i in wanted if not self._is_zero(i)}
        return known if _size(more) > BYTES_MAX else known | more

    def _is_zero(self, index: int) -> bool:
        """Read once for each time that it is written to."""
        gradient = self._parameters[index].grad
        assert gradient is not None
        seen = self._zeros.pop(index, None)
        same = seen is not None and seen[0]() is gradient and seen[1] == version_of(gradient)
        if same or not as_local(plain(gradient)).any():
            self._zeros[index] = weakref.ref(gradient), version_of(gradient)
            return True
        return False

    def _local(self, index: int) -> Tensor:
        gradient = self._parameters[index].grad
        assert gradient is not None
        return as_local(plain(gradient))

    def large_values(self) -> dict[int, Tensor]:
        """Live values, if there are too many for a record."""
        values = self._values_at(self._lies()) if self._added_to else {}
        return values if _size(values) > BYTES_MAX else {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Make the gradients those. Of large ones what lies here counts: they came another way."""
        values, lies = state.get("values", {}), state.get("lies", b"")
        large, zeros = bool(state.get("large")), set(state.get("zeros", []))
        self._added_to |= set(state.get("added_to", []))
        self._spent, self._updating, self._made_up = _NOBODY, False, set()
        self._stay, self._stay_zero = state.get("stay", [False, False])
        for index, parameter in enumerate(self._parameters):
            lie = index < len(lies) and bool(lies[index])
            if index in values:
                _put(parameter, values[index], parameter.grad)
            elif not lie:
                parameter.grad = None
            elif not (large and index in self._added_to and parameter.grad is not None):
                self._make_up(index, parameter.grad, is_zero=index in zeros)
            else:
                end(parameter.grad)  # Where zeros were made up its values have come since.
        self._found = []

    def _make_up(self, index: int, into: Tensor | None, *, is_zero: bool = False) -> None:
        """Zeros for what is gone, unless they are what it was."""
        parameter = self._parameters[index]
        _put(parameter, None, into)
        if not is_zero:
            self._made_up.add(index)
            assert parameter.grad is not None
            watch(parameter.grad, _refuse)

    def load_large(self, values: dict[int, Tensor]) -> None:
        """Make these the gradients of their parameters, and drop other large ones. They wait for
        the next step: an update of this process's own, in the sandbox, has not consumed them."""
        self._spent, self._updating = _NOBODY, False
        for index in self.large_values().keys() - values.keys():
            self._parameters[index].grad = None
        for index, value in values.items():
            parameter = self._parameters[index]
            _put(parameter, value, parameter.grad)
            self._added_to.add(index)


class LargeGradients:
    """Values of gradients that are too large for a record, as bulk state."""

    def __init__(self, gradients: Gradients) -> None:
        self._gradients = gradients

    def state_dict(self) -> dict[str, Any]:
        """{} while a record can carry them."""
        if not self._gradients.accumulate:
            return {}
        return {str(i): value for i, value in self._gradients.large_values().items()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """As they were given."""
        self._gradients.load_large({int(index): value for index, value in state.items()})


class _Consumed:
    """Ids of the parameters of optimizers' groups: mostly the same objects as in the step before.
    Those of the last groups are kept, with the parameters, so that no other gets an id."""

    def __init__(self, all_ids: frozenset[int]) -> None:
        self._all = all_ids
        self._known: list[tuple[list[Tensor], frozenset[int]]] = []

    def ids_of(self, parameters: list[Tensor]) -> frozenset[int]:
        for known, ids in self._known:
            if are(known, parameters):
                return ids
        ids = frozenset(map(id, parameters))
        if ids == self._all:
            ids = self._all
        self._known = [*self._known[1 - _GROUPS_KNOWN :], (list(parameters), ids)]
        return ids


def _refuse() -> NoReturn:
    raise StateMismatch(
        "The script reads gradients that an earlier step has left, and they are gone with the "
        "machine that had them.",
        means="Its numbers would be others; the step does not count.",
        do="Read gradients in the step that makes them, before optimizer.step(), and keep what "
        "follows from them in what is tracked.",
    )


def _ones(flags: bytes) -> Iterator[int]:
    """Where they are set."""
    return (index for index, flag in enumerate(flags) if flag) if any(flags) else iter(())


def _size(values: dict[int, Tensor]) -> int:
    return sum(size_of(value) for value in values.values())


def _copy_of(parameter: Tensor) -> Tensor:
    """In host memory: a step takes no more of an accelerator's than without."""
    assert parameter.grad is not None
    return as_local(plain(parameter.grad)).detach().to("cpu", copy=True)


def _put(parameter: Tensor, local: Tensor | None, into: Tensor | None) -> None:
    """Give a parameter this gradient, or zeros: in the tensor that it had, since others may hold
    that, or memory that it is a part of."""
    end(into)
    if into is None or not _can_hold(into, local):
        made = None if local is None else _like(parameter, local.clone())
        parameter.grad = torch.zeros_like(parameter) if made is None else made
        return
    with torch.no_grad():
        held = as_local(into)
        held.zero_() if local is None else held.copy_(local)
    parameter.grad = into


def _can_hold(gradient: Tensor, local: Tensor | None) -> bool:
    held = as_local(gradient)
    dense = held.layout == torch.strided and held.is_contiguous()
    return dense and (local is None or (local.layout, local.shape) == (held.layout, held.shape))


def _like(parameter: Any, local: Tensor) -> Tensor:
    """The gradient of a parameter, from the part that is here."""
    local = local.to(as_local(parameter).device)
    if not hasattr(parameter, "device_mesh"):
        return local
    from torch.distributed.tensor import DTensor

    return DTensor.from_local(
        local,
        parameter.device_mesh,
        parameter.placements,
        run_check=False,
        shape=parameter.shape,
        stride=parameter.stride(),
    )
