"""Where a reducer keeps which parameters were used is found; who finds it elsewhere says so."""

import pytest
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from trainmover.errors import UserError
from trainmover.torch_internals.distributed import used

pytestmark = pytest.mark.usefixtures("group_of_one")


@pytest.fixture
def wrapper() -> DistributedDataParallel:
    return DistributedDataParallel(nn.Linear(3, 3), find_unused_parameters=True)


def test_marks_are_the_reducers_own(wrapper: DistributedDataParallel) -> None:
    view = used.used_by(wrapper)
    with wrapper.no_sync():
        wrapper(torch.ones(1, 3)).sum().backward()
    assert view.tolist() == [1, 1]
    view[1] = 0
    assert used.used_by(wrapper).tolist() == [1, 0]
    wrapper(torch.ones(1, 3)).sum().backward()
    assert view.tolist() == [0, 0]


@pytest.mark.parametrize("marks", [-8, 8, 64])
def test_what_is_no_map_of_marks_is_not_taken_for_one(marks: int) -> None:
    layout = used._layout()
    assert layout is not None
    reducer, parameters = used._probe()
    assert used._marks_as_told(reducer, parameters, layout)
    wrong = layout._replace(marks=layout.marks + marks)
    assert not used._marks_as_told(*used._probe(), wrong)


def test_a_wrapper_whose_marks_cannot_be_read_is_refused_as_it_is_made(
    wrapper: DistributedDataParallel, monkeypatch: pytest.MonkeyPatch
) -> None:
    used.know(wrapper)
    monkeypatch.setattr(used, "_layout", lambda: None)
    with pytest.raises(UserError, match="which parameters it has used"):
        used.know(wrapper)
    used.know(DistributedDataParallel(nn.Linear(2, 2)))


def test_what_a_pass_that_was_cut_short_has_left_is_gone(wrapper: DistributedDataParallel) -> None:
    """It expected gradients to come, and so would refuse the next forward's buckets."""
    wrapper(torch.ones(1, 3))
    used.set_used(wrapper, b"")
    assert used.used_by(wrapper).tolist() == [0, 0]
    with wrapper.no_sync():
        wrapper(torch.ones(1, 3)).sum().backward()
    assert used.used_by(wrapper).tolist() == [1, 1]
