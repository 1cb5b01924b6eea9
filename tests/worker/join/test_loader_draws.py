"""Steps that draw from their loader's generator are refused, unless that goes with the rank."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from trainmover.errors import StateMismatch
from trainmover.ids import Rank
from trainmover.state import rng
from trainmover.state.tracked import Tracked
from trainmover.worker.join.loader_draws import LoaderDraws
from trainmover.worker.join.refusal import Refusal


def draws_of(generator: torch.Generator, tracked: Tracked) -> LoaderDraws:
    variables: Any = SimpleNamespace(frames=lambda frame: [])
    loops: Any = SimpleNamespace(generators=lambda: iter([generator]))
    member: Any = SimpleNamespace(loops=loops, tracked=tracked)
    return LoaderDraws(member, Refusal(Rank(1), variables, loops, SimpleNamespace()))


def test_a_step_that_draws_from_its_loaders_generator_is_refused() -> None:
    generator = torch.Generator()
    draws = draws_of(generator, Tracked())
    draws.begin_step()
    draws.end_step("step (a.py line 3)")
    torch.rand(1, generator=generator)  # By a fetch.
    draws.begin_step()
    torch.rand(1, generator=generator)
    with pytest.raises(StateMismatch, match=r"step \(a.py line 3\) draws .* on rank 1"):
        draws.end_step("step (a.py line 3)")


def test_one_that_is_tracked_goes_along_as_the_step_has_left_it() -> None:
    generator, tracked = torch.Generator(), Tracked()
    tracked.add("generator", generator)
    draws = draws_of(generator, tracked)
    draws.begin_step()
    torch.rand(1, generator=generator)
    draws.end_step("step")


def test_so_do_those_of_the_process() -> None:
    (of_torch,) = (one for one in rng.of_process() if isinstance(one, torch.Generator))
    draws = draws_of(of_torch, Tracked())
    draws.begin_step()
    torch.rand(1)
    draws.end_step("step")
