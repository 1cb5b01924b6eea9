"""What becomes of variables where a step is passed over."""

from types import SimpleNamespace
from typing import Any

from trainmover.ids import Rank
from trainmover.state.script.counts import Count
from trainmover.worker.join.refusal import Refusal


def test_only_what_has_been_the_same_on_all_ranks_is_counted_on() -> None:
    held, stays = {"same": 7, "own": 7}, list[set[str]]()
    left = SimpleNamespace(put_away=lambda frame, written, known: stays.append(known))
    variables: Any = SimpleNamespace(
        counted=lambda counts: {one.name for one in counts},
        written_in_steps=lambda *_: set(),
        left=left,
    )
    loops: Any = SimpleNamespace()
    refusal = Refusal(Rank(1), variables, loops)
    refusal.parted = {"own"}
    refusal.pass_over([Count(held, "same", 2), Count(held, "own", 2)])
    assert held == {"same": 9, "own": 7}
    assert stays == [{"same"}]
