# SPDX-License-Identifier: Apache-2.0
"""A machine's link to the controller behind a relay: as `agent.link.FrameLink` to who uses it."""

from collections.abc import Callable, Iterable

from trainmover.agent.dial import Dialled
from trainmover.agent.link import FrameLink
from trainmover.errors import ProtocolError
from trainmover.ids import MachineId
from trainmover.protocol.lanes import BEAT, CARRIED_BYTES_MAX, LaneSession


class Lane(FrameLink):
    """beat() for every beat of the controller, which is answered here. The rest as in FrameLink."""

    bytes_max = CARRIED_BYTES_MAX

    def __init__(
        self,
        dialled: Dialled,
        heard: Callable[[bytes], None],
        lost: Callable[[str, bool], None],
        *,
        machine: MachineId,
        session: LaneSession,
        beat: Callable[[], None],
    ) -> None:
        super().__init__(dialled, self._opened, lost)
        self._said_to = heard
        self._machine, self._lane, self._beat = machine, session, beat

    def begin(self) -> None:
        """Say who we are; then what follows is for the controller."""
        super().begin()
        super().send([self._machine.encode()])

    def send(self, payloads: Iterable[bytes]) -> None:
        """Mark, seal and write."""
        super().send(map(self._lane.seal, payloads))

    def _opened(self, frame: bytes) -> None:
        if frame == BEAT:
            self._beat()
            super().send([BEAT])
            return
        try:
            payload = self._lane.opened(frame)
        except ProtocolError as error:  # Not the controller's fault.
            self.end(error.happened)
            return
        self._said_to(payload)
