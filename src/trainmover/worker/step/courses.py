# SPDX-License-Identifier: Apache-2.0
"""What small state has been at every fetch until now, as a hash by name; and what variables of the
script that steps store to have been, since they first changed.

A meter of each rank's own losses is nothing on all ranks where a pass begins. So that two ranks
have the same now says little of what lines between their steps make of it next; that they have had
the same at every fetch until now says that those lines change it alike. A flag of each rank's own
may be the same on all of them now, and another where the next step has set it; what has never
changed, as a rank's number, the next step leaves alone, too.
"""

from collections.abc import Mapping

import xxhash

from trainmover.ids import Step

_KEPT = 2
"""Fetches before the last: another rank may be so far behind."""


class Courses:
    """Of one rank; main thread only.

    at  by the step that a fetch was for, of the last few: hashes by name
    """

    def __init__(self) -> None:
        self.at: dict[Step, dict[str, int]] = {}
        self._small: Mapping[str, bytes] = {}
        self._first: dict[str, bytes] = {}

    def fetched(
        self, step: Step, small: Mapping[str, bytes], stored: Mapping[str, bytes]
    ) -> dict[str, int]:
        """The rank stands at the fetch for this step, with that small state. The newest hashes.

        stored: what variables are that steps store to
        """
        before, known = self._small, self.at
        newest = known[max(known)] if known else {}
        if stored:
            first = self._first
            changed = {
                name: state
                for name, state in stored.items()
                if name in newest or first.setdefault(name, state) != state
            }
            small = {**small, **changed}
        if small != before:
            newest = newest | {
                name: xxhash.xxh3_64_intdigest(state, newest.get(name, 0))
                for name, state in small.items()
                if before.get(name) != state
            }
            self._small = small
        self.at = {at: known[at] for at in sorted(known)[-_KEPT:] if at < step}
        self.at[step] = newest
        return newest

    def go_on_as(self, step: Step, small: Mapping[str, bytes], known: dict[str, int]) -> None:
        """Be a rank that stood there, with what its record says."""
        self.at, self._small, self._first = {step: known}, small, {}

    def forget(self) -> None:
        """The rank goes back, and so do all others."""
        self.at, self._small, self._first = {}, {}, {}


def parted(one: Mapping[str, int], other: Mapping[str, int] | None) -> set[str]:
    """Of two ranks at a fetch for the same step: names of what has not been the same on both until
    then. other: None if nothing is known of it, which proves nothing alike"""
    every = one.keys() | (other or {}).keys()
    return {name for name in every if other is None or other.get(name) != one.get(name)}
