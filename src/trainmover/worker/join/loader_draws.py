# SPDX-License-Identifier: Apache-2.0
"""Whether steps draw from generators that their loader draws from as well.

Where those stand goes with the place in the data: that is the fetch of a step's batch. Who takes a
rank behind the gate of that step fetches the batch again, and passes over the step: its draws would
be missing, and the next pass be shuffled otherwise.
"""

from collections.abc import Iterator

from trainmover.state import rng
from trainmover.state.encode import encode
from trainmover.state.kinds.generators import Generator, KeptGenerator, state_of
from trainmover.worker.join.refusal import Refusal
from trainmover.worker.member import Member


class LoaderDraws:
    """Of one run in the sandbox."""

    def __init__(self, member: Member, refusal: Refusal) -> None:
        self._member, self._refusal = member, refusal
        self._stood: list[tuple[Generator, bytes]] = []

    def begin_step(self) -> None:
        """A step is called: it has its batch."""
        self._stood = [(one, encode(state_of(one))) for one in self._of_loaders_alone()]

    def end_step(self, step: str) -> None:
        """It has returned. Raises StateMismatch if it has drawn from one of them.

        step: its name, file and line
        """
        stood, self._stood = self._stood, []
        if any(encode(state_of(one)) != state for one, state in stood):
            self._refusal.draws_as_its_loader(step)

    def _of_loaders_alone(self) -> Iterator[Generator]:
        """A tracked one, and those of the process, go along as a step has left them."""
        tracked = (one for _, one in self._member.tracked.items())
        kept = [one.generator for one in tracked if isinstance(one, KeptGenerator)]
        others = {*map(id, kept), *map(id, rng.of_process())}
        yield from (one for one in self._member.loops.generators() if id(one) not in others)
