# SPDX-License-Identifier: Apache-2.0
"""The way from the fetch where a joiner parks to the point where its rank stood.

The joiner parks at some fetch; the rank may have stood in another loop, or behind committed steps.
Then the script runs on, still in the sandbox: loops that are over are passed by, those the rank was
in go on where it fetched last, committed steps are passed over. What the script does between its
steps changes bulk state too (a scheduler's step, an average of weights), so state is taken when the
joiner has arrived.

A loop that is passed by has as many rounds as the rank had, since the lines behind it count on what
rounds leave: a list of results, a divisor, a name that is bound in its body. Nothing is loaded or
computed for them: the batch is the same in all, the number that a step gives is the last that was
made here. Both are made up, and so is what the script makes of them: where it is still read when
the joiner arrives, it is compared like any other variable.

The rank may have fetched in another line than the loop's first fetch is in, as where a script draws
the first batch of a pass before a `while` loop, and the others in it. What lies between the two is
not to be run again with the rank's state: to that line, too, the joiner goes with what is made up.

A rank may be lost behind the gate of a loop's last step, or in the lines behind that loop. Its
source has left the loop meanwhile and run those lines, and its state has had them. So the way goes
on to where the source stands, and the lines are run before that state is taken, as all others on
the way, with batches that are drawn; what they have left in variables must be what the source has.
"""

from collections import deque
from collections.abc import Collection, Mapping
from typing import Any

import torch
from torch import Tensor

from trainmover.comm import objects
from trainmover.comm.calls.arguments import blank, gathers, gives_a_value
from trainmover.comm.calls.tap import Call
from trainmover.errors import StateMismatch
from trainmover.ids import Rank, Step
from trainmover.state.kinds.modules.large_buffers import is_hash
from trainmover.torch_internals.trees import tree_map
from trainmover.worker.data import rounds
from trainmover.worker.data.batches import Batches
from trainmover.worker.join.unknown import UnknownNumber, unknown_tensor
from trainmover.worker.step.keeper import RankRecord, row_of
from trainmover.worker.step.results.given import unpacked

ROUNDS_MAX = 256
"""Of a loop that is passed by: of a longer one the newest."""


class Way:
    """Where `record` leads to, and how far a joiner has come.

    committed  last committed step
    reached    of the loops the rank was in, how many have been resumed
    loaded     small state behind the last step that was passed over, as it is here once that is
               loaded
    moved      paths of what lines behind the last step have changed on the source, which has been
               through them: they are run once more here
    onward     record of its source, where that has left the loop of the rank's last step: there
               the way ends
    """

    def __init__(
        self, rank: Rank, record: RankRecord, committed: Step, source: RankRecord | None = None
    ) -> None:
        self.rank = rank
        self.record = record
        self.committed = committed
        self.reached = 0
        self.loaded: dict[str, bytes] = {}
        self.moved: list[str] = []
        self._behind: dict[str, bytes] = {}  # Small state that the last step makes behind its gate.
        self.onward = source if source is not None and self._is_left_by(source) else None
        self._drawn = deque(record.drawn)
        self._between = deque(record.between)
        self._stepped = False
        self._values = {one.step: one.values for one in record.given}
        self._values |= {row.step: row.values for row in map(row_of, record.rows)}
        self._results = {one.step: one.result for one in record.given}
        self._at_gates = {one.step: one.small for one in record.given}

    @property
    def in_loops(self) -> bool:
        """Whether some loop that the rank was in has not been resumed yet."""
        return self.reached < len(self.record.positions)

    def _is_left_by(self, source: RankRecord) -> bool:
        record = self.record
        if record.reserve or source.reserve or source.top_step != self.committed + 1:
            return False
        here, there = record.positions, source.positions
        is_another = _loop_of(there, source.member) != _loop_of(here, record.member)
        return is_another and _rounds_of(there) > _rounds_of(here)

    def ends_further(self, positions: list[list[Any]], member: list[int]) -> bool:
        """Whether it leads on from a fetch there, behind the rank's last step, to its source's."""
        onward = self.onward
        if onward is None:
            return False
        return _loop_of(onward.positions, onward.member) != _loop_of(positions, member)

    def leads_on_from(self, ordinals: list[int], member: list[int], at: list[int]) -> bool:
        """Whether the rank stood elsewhere than at this very fetch, or its source does.

        member: path of the loop that fetches, if it is beside the loops the script is in
        at: as in `is_before_line`
        """
        here = len(ordinals) == 1 and ordinals == [place[0] for place in self.record.positions]
        stands_here = here and member == self.record.member and self.record.now is None
        return not stands_here or self.onward is not None or self.is_before_line(at)

    def is_before_line(self, at: list[int], passed: int = 0) -> bool:
        """Whether the loop to be resumed had fetched, and fetched last in another line than it does
        here, to which the script may come yet.

        at: instructions at which its frames stand. passed: fetches of that loop so far
        """
        _, position, *_, there = self.record.positions[self.reached]
        return bool(at != there) and passed < min(position.get("drawn", 0), ROUNDS_MAX)

    def was_begun_anew(self, path: list[int], passes: int) -> bool:
        """Whether the rank had begun this loop anew since, beside others: here it is to end first.

        passes: that have gone before here
        """
        main, beside = self.record.positions[-1][1], self.record.beside
        position = next((place for one, place in beside if one == path), main)
        return bool(passes < position["before"])

    def calls_at_line(self) -> Step:
        """Steps made before the fetch there."""
        return Step(self.record.positions[self.reached][3])

    def resumes(self, ordinals: list[int]) -> bool:
        """Whether the innermost of these loops is the next that the rank was in.

        If not, it was over. Raises StateMismatch if the script has passed by where the rank stood.
        """
        depth = len(ordinals) - 1
        if depth > self.reached:
            return False
        target = self.record.positions[depth][0]
        if depth == self.reached and ordinals[depth] <= target:
            return bool(ordinals[depth] == target)
        raise StateMismatch(
            f"The script of rank {self.rank} did not come to the loop where the rank had been.",
            means="This machine cannot take the rank.",
            do="Which loops a script runs must depend on tracked state, or on nothing.",
        )

    def rounds_of(self, path: list[int], drawn: int, whole: int | None) -> int:
        """How many rounds a loop is to have that the rank had left.

        drawn  batches that it has given here
        whole  rounds of one that is not left early; None: not known
        """
        depth = len(path) - 1
        reached = [place[0] for place in self.record.positions[: self.reached]]
        if self.in_loops and path[:depth] == reached:
            target, _, _, _, before, _ = self.record.positions[depth]
            if (known := rounds.of(path[depth], before, target)) != rounds.UNKNOWN:
                return known
        return drawn or (1 if whole is None else whole)

    def fetched_elsewhere(self, member: list[int]) -> bool:
        """Whether the rank, in the loops that have been reached, fetched from another one.

        Of loops around others the last fetch is what leads on: those are no `member`.
        """
        innermost = self.reached == len(self.record.positions) - 1
        return member != (self.record.member if innermost else [])

    def draws_from(self, path: list[int]) -> bool:
        """Whether the rank was drawing from this loop, beside the one where it stood."""
        return any(path == place[0] for place in self.record.beside)

    def passes_over(self) -> None:
        """A step is passed over."""
        self._stepped = True

    def rng_at_fetch(self) -> bytes | None:
        """With what a batch is drawn again: that of a reserve as it was when it was first drawn.
        None: with what is there."""
        if not self._stepped or not self._between:
            return None
        self._stepped = False
        return self._between.popleft()

    def check(self, batches: Batches, step: Step) -> None:
        """The rank has drawn this batch too. Raises StateMismatch if it was another one, or none
        for a step that it has made."""
        if not self.record.drawn or batches.hash is None:
            return
        if not self._drawn:
            if step <= self.committed:
                raise self._drew_otherwise("fewer batches than are drawn here", step)
            return
        if batches.hash.differs_from(self._drawn.popleft()):
            raise StateMismatch(
                f"For step {step} rank {self.rank} had another batch than its place gives now.",
                means="This machine cannot take the rank: it would train on other data.",
                do="The dataset must be the same on every machine, and a batch must depend on its "
                "place and on generators that can be seen, not on time or machine.",
            )

    def check_all_drawn(self) -> None:
        """It has arrived. Raises StateMismatch if the rank had drawn more until there."""
        if self._drawn:
            raise self._drew_otherwise("more batches than are drawn here", self.committed)

    def _drew_otherwise(self, drawn: str, step: Step) -> StateMismatch:
        return StateMismatch(
            f"For step {step} rank {self.rank} had drawn {drawn}.",
            means="This machine cannot take the rank: it would train on other data.",
            do="How many batches make a step must depend on tracked state, or on the number of the "
            "step, asked for in each round of a `while` loop.",
        )

    def given(self, step: Step, kind: Any, names: Collection[str]) -> Any:
        """By a step that is passed over, as far as that is known.

        kind: what another call gave. names: under which the script reports what its steps return
        """
        if result := self._results.get(step):
            return unpacked(result)
        values = self._values.get(step, {})
        known = [values[name] for name in names if name in values]
        return like(kind, known[0] if known else None)

    def small_behind(self, step: Step) -> dict[str, bytes]:
        """Small state at the gate of a step that is passed over, as far as it is known; of the last
        one also what it makes behind that."""
        record = self.record
        if record.now is None or step == self.committed:
            return {} if record.now is None else record.now.small | self._behind
        if (changed := self._at_gates.get(step)) is not None:
            return record.top.small | changed
        return record.now.small if step == record.top_step else {}

    def learn_behind(self, source: Mapping[str, Any]) -> None:
        """What the source knows of the step, and of the lines behind it, and the rank's record has
        not. What the last step makes behind its gate is not in a record from there, and the lines
        that follow read it: a rate, a mode. The source's step has made it, alike if the two were
        equal at the gate; that all do it alike is seen to by `small_on_arrival`.

        source: as there
        """
        then = self.record.now
        if then is None or self.record.complete:
            return
        self.moved = source["moved"]
        if self.record.returned:
            return
        at_gate, at_return = source["gate_small"], source["return_small"]
        self._behind = {
            name: at_return[name]
            for name in source["behind"]
            if name in at_return and at_gate.get(name) == then.small.get(name)
        }

    def small_on_arrival(
        self,
        own: dict[str, bytes],
        source: Mapping[str, Any],
        *,
        drew: bool = False,
        asked: bool = False,
    ) -> dict[str, bytes]:
        """Small state where the joiner has arrived.

        What comes after the gate in a step (a scheduler's step) is missing in a record from the
        gate. Where the lost rank's object was equal to the source's at that gate, it is a replica:
        take what the source's has become by now. But not if lines between the steps have drawn
        random numbers on the way here, and asked nobody: what they made of an object, as gradients
        of a probe with dropout, is each rank's own, and was made here as the rank made it.

        What such lines have changed before, alike on all ranks, they change alike: then the
        source's is right, also where they read what the step has left in variables, which is gone.
        Alike is what has been so at every fetch until now (`courses`): a meter of each rank's own
        losses is nothing on all of them where a pass begins. What they change for the first time
        may be each rank's own. Raises StateMismatch if it is another here than there: nobody knows
        which of them the lost rank's would be.

        own     what the joiner's objects have come to
        source  of the source: `gate_small`, `return_small` and, now, `small`; what it has changed
        drew    such lines have drawn
        asked   they have made collectives, whose values nobody has here
        """
        then = self.record.now
        if then is None or self.record.complete:
            self._check_large((then or self.record.top).small, source["small"])
            return own
        if not self.record.returned:
            self._check_behind(source, then.small)
        self._check_large(
            then.small, source["return_small" if self.record.returned else "gate_small"]
        )
        theirs_then = source["return_small" if self.record.returned else "gate_small"]
        now = source["small"]
        behind = {*source["behind"]}
        alike = {
            name
            for name in own
            if theirs_then.get(name) == then.small.get(name)
            and (name in behind or self._was_alike(name, source))
        }
        theirs = alike & behind if drew else alike
        self._check_between(theirs - behind, own, source, asked=asked)
        return {name: now.get(name, mine) if name in theirs else mine for name, mine in own.items()}

    def _check_large(self, own: Mapping[str, bytes], theirs: Mapping[str, bytes]) -> None:
        """Buffers that no record carries are the source's here. Raises StateMismatch if the rank
        had others: no gate has shown it yet, so nobody has kept what it had."""
        for name in own:
            if is_hash(name) and own[name] != theirs.get(name, own[name]):
                raise StateMismatch(
                    f"Rank {self.rank} had large buffers in `{name.rpartition('.')[0]}` that are "
                    "others on the rank which holds a copy of its state.",
                    means="What it had made of them is gone with it.",
                    do="Change what differs from rank to rank before optimizer.step(), from the "
                    "first step on.",
                )

    def _was_alike(self, name: str, source: Mapping[str, Any]) -> bool:
        """Whether both have had the same at every fetch until the rank's last one."""
        course = source["courses"].get(self.record.top_step)
        return course is not None and course.get(name) == self.record.courses.get(name)

    def _check_between(
        self,
        names: set[str],
        own: Mapping[str, bytes],
        source: Mapping[str, Any],
        *,
        asked: bool,
    ) -> None:
        """What was as the source's when the last step was over, and may be each rank's own now.

        asked: what it has come to here says nothing
        """
        now, returned, known = source["small"], source["return_small"], {*source["between"]}
        for name in sorted(names):
            mine, theirs = own[name], now.get(name, own[name])
            by_them = theirs != returned.get(name)
            by_us = mine != self.loaded.get(name, mine) and not asked and not is_hash(name)
            if mine == theirs or not (by_us or by_them) or (by_them and name in known):
                continue
            raise StateMismatch(
                f"Behind step {self.committed} the script has changed `{name}`, on each rank in "
                "its own way or for the first time.",
                means=f"What rank {self.rank} had made of it is gone with it.",
                do="Change what differs from rank to rank in the function marked @job.step, before "
                "optimizer.step().",
            )

    def _check_behind(self, source: Mapping[str, Any], own: Mapping[str, bytes]) -> None:
        """What the last step has changed behind its gate all ranks must have changed alike."""
        if source["drew_behind"]:
            raise StateMismatch(
                f"Step {self.committed} has drawn random numbers behind its first update, for the "
                "first time.",
                means=f"Where rank {self.rank} stood in its random numbers is gone with it.",
                do="Draw before optimizer.step(), or behind the function marked @job.step.",
            )
        at_gate = source["gate_small"]
        parted = [name for name in self.record.unproved if name not in source["proved"]] + [
            name
            for name in source["behind"]
            if name in source["unproved"] or at_gate.get(name) != own.get(name)
        ]
        if source["parted"]:
            parted.append("what is tracked")
        if parted:
            raise StateMismatch(
                f"Step {self.committed} has changed `{parted[0]}` behind its first update, on each "
                "rank in its own way or for the first time.",
                means=f"What rank {self.rank} had made of it is gone with it.",
                do="Change what differs from rank to rank before optimizer.step(), or behind "
                "the function marked @job.step.",
            )


def _rounds_of(positions: list[list[Any]]) -> list[tuple[int, int]]:
    """Of each loop its ordinal, and the batches before its fetch: what comes later is more."""
    return [(ordinal, position.get("drawn", 0)) for ordinal, position, *_ in positions]


def _loop_of(positions: list[list[Any]], member: list[int]) -> tuple[Any, ...]:
    """Which loop fetches, in which rounds of those around it."""
    *around, (innermost, _) = _rounds_of(positions)
    return around, innermost, member


def like(result: Any, known: float | None) -> Any:
    """What a step that is passed over gives back: the number `known`, or something of the kind of
    `result`, of which nobody knows the numbers."""
    if known is not None and isinstance(result, Tensor):
        return torch.full(result.shape, known, dtype=result.dtype)
    if known is not None:
        return known

    def unknown(leaf: Any) -> Any:
        if isinstance(leaf, Tensor):
            return unknown_tensor(leaf)
        return UnknownNumber() if type(leaf) in (float, int, bool) else leaf

    return tree_map(unknown, result)


def made_up(result: Any, number: float) -> Any:
    """The same of a round that is passed by, whose variables are compared: a number, or NaN."""
    if isinstance(result, Tensor) and result.numel() == 1 and result.is_floating_point():
        return torch.full(result.shape, number, dtype=result.dtype)
    if isinstance(result, float):
        return number

    def unknown(leaf: Any) -> Any:
        if isinstance(leaf, Tensor) and leaf.is_floating_point():
            return torch.full(leaf.shape, float("nan"), dtype=leaf.dtype)
        if isinstance(leaf, Tensor):
            return torch.zeros(leaf.shape, dtype=leaf.dtype)
        return float("nan") if isinstance(leaf, float) else leaf

    return tree_map(unknown, result)


class Silence:
    """The tap of a joiner on its way: what it calls, the job has called long ago.

    values       calls that gave a value, which is nowhere any more: behind the last step
    since_fetch  the same, since the rank's fetch, where variables are compared
    """

    def __init__(self) -> None:
        self.values = self.since_fetch = 0

    @torch.no_grad()
    def serve(self, call: Call) -> bool:
        """What is gathered is this rank's own, as if all had given the same. Other outputs stay as
        they are, but for sizes of objects, which torch leaves unset for others to fill."""
        if gathers(call.op):
            _give_back(call)
        elif not _gives(call) and objects.under_way():
            blank(call.outputs)
        self.values += gives_a_value(call.op)
        self.since_fetch += gives_a_value(call.op)
        return True

    def done(self, call: Call) -> None:
        """Never called."""


class Ended(Silence):
    """The tap of a joiner whose rank was lost behind its last step, while other ranks' scripts have
    ended: what it calls there they have called too, or never will."""

    def serve(self, call: Call) -> bool:
        """Raises StateMismatch for a call that gives a value."""
        super().serve(call)
        if not self.values:
            return True
        raise StateMismatch(
            f"The script makes a collective ({call.op}) behind its last step, and the machine that "
            "had made it is lost.",
            means="What it gave is gone: scripts of other ranks have ended.",
            do="Make such collectives in the last step, or on each rank before it lets others end.",
        )


def _give_back(call: Call) -> None:
    for place, output in enumerate(call.outputs):
        own = call.inputs[place % len(call.inputs)]
        if own.dtype == output.dtype and own.numel() and output.numel() % own.numel() == 0:
            times = output.numel() // own.numel()
            output.copy_(own.reshape(-1).repeat(times).view(output.shape))


def _gives(call: Call) -> bool:
    """Whether others have of it what this seat gives them."""
    root = call.meta[2]
    return call.op == "send" or (call.op == "broadcast" and root == call.seat)
