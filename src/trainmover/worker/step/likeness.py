# SPDX-License-Identifier: Apache-2.0
"""Whether ranks that were all replicas still are: asked at every gate, of a few bytes. Pure.

Rounds are seldom, and replicas may part between two of them: by what the script does, or because
bits have changed. Whoever is lost from then on until somebody knows of it cannot be given back. So
each gate compares a sample (`state.proof.samples`): if one differs, a round follows at once, which
says for certain who holds what, and all ranks keep what is their own from that boundary on.

A sample has gradients in it that are about to be applied. Where they differ and all state is equal
behind the update, they are no sign in this script, and are left out from then on.

This works where all ranks were alike in the newest round. Ranks that hold shards, or parts of a
model, have what is their own in cuts from the start.
"""

_NOTHING = -(2**63)
"""What says nothing where the largest of all ranks' numbers is taken."""


class Likeness:
    """Of one rank.

    known   all ranks were alike in the newest round, and no sample has shown otherwise since
    vain    gradients have differed, and made no difference
    parted  the newest gate has shown that ranks hold different things, or are about to
    sample  of this rank, for the coming gate
    """

    def __init__(self) -> None:
        self.known = self.vain = self.parted = False
        self.sample = 0

    def asks(self) -> tuple[int, int]:
        """For the gate, which takes the largest over all ranks. Who does not know says nothing.

        >>> likeness = Likeness()
        >>> likeness.asks() == (_NOTHING, _NOTHING)
        True
        """
        self.parted = False
        return (self.sample, -self.sample) if self.known else (_NOTHING, _NOTHING)

    def hears(self, most: int, minus_least: int) -> None:
        """What the gate has found."""
        self.parted = self.known and most != -minus_least

    def round_shows(self, *, alike: bool) -> bool:
        """A round has compared all that ranks hold. Whether they have parted since the last one."""
        was_known, self.known = self.known, alike
        self.vain |= self.parted and alike
        self.parted = False
        return was_known and not alike

    def begin_epoch(self, *, known: bool, vain: bool) -> None:
        """What some rank knows. Whoever has joined has the state of another one."""
        self.known, self.vain, self.parted = known, vain, False
