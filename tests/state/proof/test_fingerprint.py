"""Equal state has equal fingerprints, and a single bit shows where it is."""

from typing import Any

import pytest
import torch
from torch import nn

from trainmover.state.proof.fingerprint import HASH_BYTES, Fingerprint, fingerprint, hashes_of
from trainmover.state.tracked import Tracked


def build(steps: int = 1) -> Tracked:
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 1))
    optimizer = torch.optim.AdamW(model.parameters())
    tracked = Tracked()
    tracked.add("model", model)
    tracked.add("optimizer", optimizer)
    tracked.add("scheduler", torch.optim.lr_scheduler.StepLR(optimizer, 3))
    for _ in range(steps):
        model(torch.randn(5, 4)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    return tracked


def differing(one: Fingerprint, other: Fingerprint) -> list[str]:
    assert one.paths == other.paths
    return [
        path
        for i, path in enumerate(one.paths)
        if one.hashes[i * HASH_BYTES :][:HASH_BYTES] != other.hashes[i * HASH_BYTES :][:HASH_BYTES]
    ]


def test_everything_tracked_is_in_its_section() -> None:
    made = fingerprint(build())
    first, second, third = made.sections
    assert len(made.hashes) == HASH_BYTES * len(made.paths) == HASH_BYTES * (first + second + third)
    shared, buffers = made.paths[:first], made.paths[first : first + second]
    assert {
        "model",
        "model.0.weight",
        "optimizer",
        "optimizer.state.model.0.weight.exp_avg",
    } <= set(shared)
    assert buffers == [
        f"model.1.{n}" for n in ("num_batches_tracked", "running_mean", "running_var")
    ]
    assert {"model.modes", "scheduler"} <= set(made.paths[first + second :])
    assert (made.shared + made.rest, len(made.shared)) == (made.hashes, HASH_BYTES * first)
    assert made.read == sum(p.nbytes for p in build()["model"].parameters()) * 3 + 6 * 4


def test_two_ranks_that_did_the_same_have_the_same() -> None:
    assert fingerprint(build(3)) == fingerprint(build(3))


@pytest.mark.parametrize(
    ("find", "path"),
    [
        (lambda t: t["model"][2].weight, "model.2.weight"),
        (
            lambda t: t["optimizer"].state[t["model"][0].bias]["exp_avg"],
            "optimizer.state.model.0.bias.exp_avg",
        ),
        (lambda t: t["model"][1].running_var, "model.1.running_var"),
    ],
)
def test_one_bit_is_found_where_it_is(find: Any, path: str) -> None:
    one, other = build(), build()
    find(other).data.view(torch.int32).view(-1)[0] ^= 1
    assert differing(fingerprint(one), fingerprint(other)) == [path]


def test_numbers_and_small_objects_are_watched_as_well() -> None:
    one, other = build(), build()
    optimizer: Any = other["optimizer"]
    optimizer.param_groups[0]["lr"] *= 2
    assert differing(fingerprint(one), fingerprint(other)) == ["optimizer", "optimizer.settings"]
    scheduler: Any = other["scheduler"]
    scheduler.last_epoch += 1
    assert differing(fingerprint(one), fingerprint(other)) == [
        "optimizer",
        "optimizer.settings",
        "scheduler",
    ]


def test_what_replicas_have_in_common_is_neither_buffers_nor_small_state() -> None:
    one, other = build(), build()
    other["model"][1].running_mean.add_(1)
    other["scheduler"].last_epoch += 1
    assert fingerprint(one).replica == fingerprint(other).replica
    other["model"][0].bias.data.add_(1)
    assert fingerprint(one).replica != fingerprint(other).replica


def test_state_that_appears_later_changes_the_layout() -> None:
    before, later = fingerprint(build(0)), fingerprint(build(1))
    assert before.layout != later.layout
    assert later.layout == fingerprint(build(2)).layout


def test_shape_and_dtype_count_and_strides_do_not() -> None:
    x = torch.arange(6.0).reshape(2, 3)
    assert len(set(hashes_of([x, x.t().contiguous().t()]))) == 1
    others = [x.reshape(3, 2), x.reshape(6), x.view(torch.int32)]
    assert len(set(hashes_of([x, *others]))) == 4
    assert len(set(hashes_of([torch.zeros(0), torch.zeros(0, 2)]))) == 2


def test_an_object_that_hands_out_copies_is_read_as_well() -> None:
    class Copies:
        def __init__(self) -> None:
            self.mean = torch.ones(200, 200)

        def state_dict(self) -> dict[str, torch.Tensor]:
            return {"mean": self.mean.clone()}

        def load_state_dict(self, state: dict[str, torch.Tensor]) -> None:
            self.mean = state["mean"]

    tracked = Tracked()
    tracked.add("average", Copies())
    assert fingerprint(tracked).paths == ["average", "average.mean"]
