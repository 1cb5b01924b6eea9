# SPDX-License-Identifier: Apache-2.0
"""The tap of one later step of a live rank: which collectives it makes, not what they give."""

from trainmover.comm.calls.tap import Call
from trainmover.sandbox.trace import group_of, trace_of, what_of


class StepTrace:
    """Only hears. From any thread."""

    def __init__(self) -> None:
        self._calls: list[tuple[str, str]] = []

    def serve(self, call: Call) -> bool:
        """Note the call; it runs for real."""
        self._calls.append((group_of(call), what_of(call)))
        return False

    def done(self, call: Call) -> None:
        """Nothing is kept."""

    def trace(self) -> str:
        """Of the calls so far, to be compared with that of the recorded step."""
        return trace_of(self._calls)
