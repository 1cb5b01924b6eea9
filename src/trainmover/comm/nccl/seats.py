# SPDX-License-Identifier: Apache-2.0
"""Check whether seats can talk over NCCL at all, from what each says of itself. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from trainmover.errors import PeerLost


@dataclass(frozen=True)
class Card:
    """version of libnccl, the device, and for whose host it passes to NCCL (`NCCL_HOSTID`)."""

    version: int
    device: str
    host: str

    def text(self) -> str:
        return f"{self.version}|{self.device}|{self.host}"

    @classmethod
    def read(cls, said: str) -> "Card":
        """Raises PeerLost for what is no card."""
        version, _, rest = said.partition("|")
        device, _, host = rest.partition("|")
        if not version.isdecimal():
            raise PeerLost(f"what a seat left in the store is damaged: {said[:80]!r}")
        return cls(int(version), device, host)


def check_cards(group: str, cards: Sequence[Card]) -> None:
    """Raises PeerLost, by seat, where they differ in what they must share."""
    first = cards[0]
    for seat, card in enumerate(cards):
        if card.version != first.version:
            raise PeerLost(
                f"group {group} may not connect: seat {seat} has libnccl {in_words(card.version)}, "
                f"seat 0 has {in_words(first.version)}; install the same torch on all machines"
            )
    seen: dict[tuple[str, str], int] = {}
    for seat, card in enumerate(cards):
        other = seen.setdefault((card.device, card.host), seat)
        if other != seat:
            raise PeerLost(
                f"group {group} may not connect: seats {other} and {seat} have the same device "
                f"({card.device}), and NCCL wants one for each; start fewer workers on the machine "
                "(--nproc), or have each choose its own by its local rank"
            )


def in_words(version: int) -> str:
    """2.18.3 of 21803."""
    return f"{version // 10000}.{version // 100 % 100}.{version % 100}"
