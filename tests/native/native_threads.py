"""Programs that use several groups of one rank from several threads."""

import threading
from collections.abc import Callable

from native_calls import Call, staged
from native_team import Rank

Part = tuple[str, list[Call]]  # a group and its calls


def in_threads(jobs: list[Callable[[], None]]) -> None:
    """All jobs at once; raises the first error after all have ended."""
    errors: list[BaseException] = []

    def run(job: Callable[[], None]) -> None:
        try:
            job()
        except BaseException as error:  # noqa: BLE001  raised again below, in the caller
            errors.append(error)

    threads = [threading.Thread(target=run, args=(job,), daemon=True) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def perform_beside(rank: Rank, parts: list[Part]) -> None:
    """Every group's calls in a thread of its own."""

    def job(part: Part) -> Callable[[], None]:
        name, calls = part
        ready = [staged(call, *rank.seats[name]) for call in calls]

        def run() -> None:
            for one in ready:
                one.run(rank.groups[name])

        return run

    in_threads([job(part) for part in parts])


def perform_in_turn(rank: Rank, parts: list[Part]) -> None:
    """One thread goes over the groups in the order given, which is the same everywhere."""
    for name, calls in parts:
        for call in calls:
            staged(call, *rank.seats[name]).run(rank.groups[name])
