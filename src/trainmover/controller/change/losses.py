"""Machines that are lost together, in words. Pure."""

from collections.abc import Sequence

from trainmover.controller.events import Lost

NAMED_MAX = 6


def losses_text(lost: Sequence[Lost]) -> str:
    """Who was lost and why, each reason once.

    >>> def of(machine, why):
    ...     return Lost(machine=machine, why=why, heard_us=0)
    >>> losses_text([of("m1", "its process ended")])
    'm1 was lost: its process ended'
    >>> losses_text([of("m1", "silent"), of("m2", "silent"), of("m3", "its process ended")])
    'm1 and m2 were lost: silent; m3 was lost: its process ended'
    """
    by_why: dict[str, list[str]] = {}
    for one in lost:
        by_why.setdefault(one.why, []).append(one.machine)
    return "; ".join(
        f"{_named(names)} {'was' if len(names) == 1 else 'were'} lost: {why}"
        for why, names in by_why.items()
    )


def _named(names: list[str]) -> str:
    if len(names) > NAMED_MAX:
        return f"{len(names)} machines ({', '.join(names[:NAMED_MAX])} ...)"
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))
