"""A batch that a lost step has written to stands for nothing behind it."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from trainmover.errors import StateMismatch
from trainmover.state.kinds.values import Attributes
from trainmover.state.tracked import Tracked
from trainmover.worker.join.written import Written


def normalised(written: Written, batch: list[Tensor], *, scaled: bool = True) -> None:
    x, y = batch
    end = written.begin_step("step", (batch,), {"more": y})
    if scaled:
        x -= x.mean()
    end()


def test_what_steps_write_to_is_gone_where_one_is_passed_over() -> None:
    written, x, y = Written(), torch.ones(2, 3), torch.ones(2)
    normalised(written, [torch.ones(2, 3), torch.ones(2)])
    written.pass_over("step", ([x, y],), {"more": y}, Tracked())
    assert (x.size(0), x.shape, len(x)) == (2, (2, 3), 2)
    assert str(x) == "tensor(nan)"
    assert y.sum().item() == 2.0
    for use in (
        lambda: x.abs(),
        lambda: x.mean().item() + 1,
        lambda: x[0] * 2,
        lambda: y + x[0, 0],
    ):
        with pytest.raises(StateMismatch, match="its last step has written to"):
            use()


def test_who_fills_it_anew_goes_on_with_it() -> None:
    written, x = Written(), torch.ones(2, 3)
    normalised(written, [torch.ones(2, 3), torch.ones(2)])
    written.pass_over("step", ([x, torch.ones(2)],), {"more": torch.ones(2)}, Tracked())
    x.copy_(torch.zeros(2, 3))
    assert x.sum().item() == 0.0


def test_what_steps_only_read_stays() -> None:
    written, x, y = Written(), torch.ones(2, 3), torch.ones(2)
    normalised(written, [x, y], scaled=False)
    written.pass_over("step", ([x, y],), {"more": y}, Tracked())
    written.pass_over("another", ([x, y],), {}, Tracked())
    assert x.sum().item() == 6.0


def test_what_is_tracked_is_given_by_others() -> None:
    written, tracked, queue = Written(), Tracked(), SimpleNamespace(rows=[torch.ones(2, 3)])
    net = nn.BatchNorm1d(2)
    tracked.add("net", net)
    tracked.add("queue", Attributes(queue, ("rows",)))
    for kept in (net.running_mean, net.weight.data, queue.rows[0], queue.rows[0][1:]):
        assert kept is not None
        normalised(written, [torch.ones(2, 3), torch.ones(2)])
        written.pass_over("step", ([kept, torch.ones(2)],), {"more": torch.ones(2)}, tracked)
        assert kept.isfinite().all()


@pytest.mark.parametrize("of", [Tensor.numpy, lambda x: x.data])
def test_also_what_no_version_counts(of: Any) -> None:
    written, x = Written(), torch.ones(2)
    made = torch.ones(2)
    end = written.begin_step("step", (made,), {})
    of(made)[0] = 0.0
    end()
    written.pass_over("step", (x,), {}, Tracked())
    with pytest.raises(StateMismatch, match="its last step has written to"):
        x.abs()
