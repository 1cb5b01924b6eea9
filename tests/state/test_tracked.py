"""A joiner that loads what the source gave has the source's digest, and trains on bit for bit."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from trainmover.errors import StateMismatch, UserError
from trainmover.state.arrangement import arrangement_of
from trainmover.state.tracked import Tracked, bulk_leaves, load_bulk


class Net(nn.Module):
    def __init__(self, width: int = 8, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.inner = nn.Linear(4, width, dtype=dtype)
        self.norm = nn.BatchNorm1d(width, dtype=dtype)
        self.out = nn.Linear(width, 1, dtype=dtype)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        loss: torch.Tensor = self.out(self.norm(self.inner(x))).square().sum()
        return loss


class Average:
    """Keeps its tensors to itself: state_dict gives copies."""

    def __init__(self, value: float) -> None:
        self.mean = torch.full((200, 200), value)
        self.count = int(value)

    def state_dict(self) -> dict[str, Any]:
        return {"mean": self.mean.clone(), "count": self.count}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.mean, self.count = state["mean"].clone(), state["count"]


def step(tracked: Tracked) -> None:
    model: Any = tracked["model"]
    optimizer: Any = tracked["optimizer"]
    model(torch.randn(6, 4, dtype=model.out.weight.dtype)).backward()
    optimizer.step()
    optimizer.zero_grad()
    scheduler: Any = tracked["scheduler"]
    scheduler.step()


class Around(torch.optim.SGD):
    """Its state is that of another optimizer, and a count beside it."""

    taken = 0

    def step(self, closure: Any = None) -> Any:
        self.taken += 1
        return super().step(closure)

    def state_dict(self) -> dict[str, Any]:
        return {"base": super().state_dict(), "taken": self.taken}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        super().load_state_dict(state_dict["base"])
        self.taken = state_dict["taken"]


Make = Callable[[Any], torch.optim.Optimizer]
OPTIMIZERS: dict[str, Make] = {
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.1),
    "adamw tensor lr": lambda p: torch.optim.AdamW(p, lr=torch.tensor(0.1), capturable=False),
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
    "adagrad": lambda p: torch.optim.Adagrad(p),
    "adafactor": lambda p: torch.optim.Adafactor(p),
    "rprop": lambda p: torch.optim.Rprop(p),
    "around another": lambda p: Around(p, lr=0.1, momentum=0.9),
}


def build(seed: int, steps: int, make: Make = OPTIMIZERS["adamw"]) -> Tracked:
    torch.manual_seed(seed)
    model = Net()
    optimizer = make(model.parameters())
    tracked = Tracked()
    tracked.add("model", model)
    tracked.add("optimizer", optimizer)
    tracked.add("scheduler", torch.optim.lr_scheduler.MultiStepLR(optimizer, [1, 3], 0.5))
    tracked.add("average", Average(float(seed)))
    for _ in range(steps):
        step(tracked)
    return tracked


def move(source: Tracked, joiner: Tracked) -> None:
    header, tensors = source.bulk_header()
    targets = joiner.bulk_destinations(header)
    for target, tensor in zip(targets, tensors, strict=True):
        target.copy_(tensor)
    joiner.load_bulk_header(header, targets)
    joiner.load_small(source.small_states())


@pytest.mark.parametrize("joiner_steps", [0, 1, 5])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_joiner_goes_on_as_the_source(name: str, joiner_steps: int) -> None:
    source = build(1, 4, OPTIMIZERS[name])
    joiner = build(2, joiner_steps, OPTIMIZERS[name])
    move(source, joiner)
    assert joiner.digest() == source.digest()
    for tracked in (source, joiner):
        torch.manual_seed(9)
        step(tracked)
    assert joiner.digest() == source.digest()


def test_a_source_before_its_first_step_resets_a_joiner() -> None:
    source, joiner = build(1, 0), build(2, 3)
    move(source, joiner)
    assert joiner.digest() == source.digest()


def test_a_joiner_that_has_stepped_receives_in_place() -> None:
    source, joiner = build(1, 4), build(2, 1)
    optimizer: Any = joiner["optimizer"]
    group, states = optimizer.param_groups[0], list(optimizer.state.values())
    header, _ = source.bulk_header()
    model: Any = joiner["model"]
    own = [*model.parameters(), *bulk_leaves(optimizer).tensors]
    targets = joiner.bulk_destinations(header)[: len(own)]
    assert [t.data_ptr() for t in targets] == [t.data_ptr() for t in own]
    move(source, joiner)
    assert group is optimizer.param_groups[0]
    assert group["lr"] == source["optimizer"].state_dict()["param_groups"][0]["lr"]
    assert all(a is b for a, b in zip(states, optimizer.state.values(), strict=True))


class Late(torch.optim.Optimizer):
    """One of the script's own, whose states come with some later step."""

    def __init__(self, params: Any) -> None:
        super().__init__(params, {"lr": 0.1})

    def step(self, closure: Any = None) -> None:
        for param in self.param_groups[0]["params"]:
            self.state[param]["mean"] = param.detach().clone()


def test_what_new_groups_would_get_stays_as_it_was_where_states_come_with_a_load() -> None:
    source, joiner = Late(Net().parameters()), Late(Net().parameters())
    source.step()
    load_bulk(joiner, *bulk_leaves(source))
    assert len(joiner.state) == len(source.state) > 0
    assert joiner.defaults == source.defaults == {"lr": 0.1}


class Wrapped(torch.optim.Optimizer):
    """Around another, without a word of its own."""

    def __init__(self, inner: torch.optim.Optimizer) -> None:
        self.inner, self.param_groups, self.steps = inner, inner.param_groups, 0

    def state_dict(self) -> dict[str, Any]:
        return self.inner.state_dict() | {"steps": self.steps}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.steps = state.pop("steps")
        self.inner.load_state_dict(state)


def test_an_optimizer_around_another_need_not_be_set_up_as_torch_has_them() -> None:
    source, joiner = (Wrapped(Late(Net().parameters())) for _ in range(2))
    source.inner.step()
    source.steps = 3
    load_bulk(joiner, *bulk_leaves(source))
    assert joiner.steps == 3
    assert arrangement_of([("optimizer", source)]).hidden == {}


def test_kinds() -> None:
    tracked = build(1, 1)
    assert tracked.bulk_names() == ["model", "optimizer", "average"]
    assert tracked.small_names() == ["scheduler"]
    kinds = ("modes", "used", "gradients", "hooks", "unsaved", "buffers")
    parts = [f"model.{part}" for part in kinds]
    assert list(tracked.small_states()) == ["scheduler", *parts, "optimizer.settings"]


def test_a_small_object_that_grows_becomes_bulk() -> None:
    average = Average(1.0)
    average.mean = torch.zeros(2)
    tracked = Tracked()
    tracked.add("average", average)
    assert list(tracked.small_states()) == ["average"]
    average.mean = torch.zeros(200, 200)
    assert tracked.small_states() == {}
    average.mean = torch.zeros(2)
    assert tracked.bulk_names() == ["average"]


def change_one_bit(tracked: Tracked) -> None:
    model: Any = tracked["model"]
    model.out.bias.data.view(torch.int32)[0] ^= 1


def change_rate(tracked: Tracked) -> None:
    optimizer: Any = tracked["optimizer"]
    optimizer.param_groups[0]["lr"] += 1e-12


def change_shape(tracked: Tracked) -> None:
    average: Any = tracked["average"]
    average.mean = average.mean.view(100, 400)


@pytest.mark.parametrize("change", [change_one_bit, change_rate, change_shape])
def test_any_difference_shows_in_the_digest(change: Callable[[Tracked], None]) -> None:
    tracked = build(1, 1)
    before = tracked.digest()
    assert tracked.digest() == before == build(1, 1).digest()
    change(tracked)
    assert tracked.digest() != before
    assert tracked.digest(["scheduler"]) == build(1, 1).digest(["scheduler"])


def test_digest_does_not_see_strides() -> None:
    plain, strided = Tracked(), Tracked()
    model = nn.Conv2d(3, 4, 3, dtype=torch.bfloat16)
    plain.add("model", model)
    twin = nn.Conv2d(3, 4, 3, dtype=torch.bfloat16)
    twin.load_state_dict(model.state_dict())
    strided.add("model", twin.to(memory_format=torch.channels_last))
    assert plain.digest() == strided.digest()


@pytest.mark.parametrize(
    ("other", "named"),
    [
        (Net(width=9), "inner.weight"),
        (Net(dtype=torch.float64), "inner.weight"),
        (nn.Sequential(nn.Linear(4, 8)), "inner.weight"),
        (nn.ModuleDict({"inner": nn.Linear(4, 8)}), "norm.weight"),
    ],
    ids=["shape", "dtype", "names", "fewer"],
)
def test_another_model_is_refused_and_the_tensor_named(other: nn.Module, named: str) -> None:
    source, joiner = Tracked(), Tracked()
    source.add("model", Net())
    joiner.add("model", other)
    before = joiner.digest()
    header, _ = source.bulk_header()
    with pytest.raises(StateMismatch, match=named):
        joiner.bulk_destinations(header)
    assert joiner.digest() == before


def test_a_source_with_fewer_tensors_is_refused() -> None:
    leaves = bulk_leaves(nn.ModuleDict({"inner": nn.Linear(4, 8)}))
    with pytest.raises(StateMismatch, match="does not exist at the source"):
        load_bulk(Net(), *leaves)


def test_other_parameter_groups_are_refused() -> None:
    source, joiner = build(1, 1), build(1, 1)
    model: Any = joiner["model"]
    params = list(model.parameters())
    joiner.add("optimizer", torch.optim.AdamW([{"params": params[:2]}, {"params": params[2:]}]))
    with pytest.raises(StateMismatch):
        move(source, joiner)


def test_names_that_are_not_tracked_are_refused() -> None:
    source = build(1, 1)
    with pytest.raises(StateMismatch, match="scheduler"):
        Tracked().load_small(source.small_states())
    with pytest.raises(StateMismatch, match="optimizer"):
        Tracked().bulk_destinations(source.bulk_header()[0])


@pytest.mark.parametrize("obj", [object(), 3, Average], ids=["object", "int", "a class"])
def test_only_objects_with_state_can_be_tracked(obj: object) -> None:
    with pytest.raises(UserError, match="`thing` cannot be tracked"):
        Tracked().add("thing", obj)


def test_state_that_ranks_must_read_together_is_refused() -> None:
    calls: list[str] = []

    class Gathered(Average):
        def state_dict(self) -> dict[str, Any]:
            calls.append("all_gather")
            return super().state_dict()

    tracked = Tracked(calls=lambda: len(calls))
    tracked.add("average", Average(1.0))
    tracked.add("gathered", Gathered(1.0))
    with pytest.raises(UserError, match=r"`gathered` cannot be tracked: .* makes collectives"):
        tracked.small_states()


def test_state_that_cannot_be_sent_is_named() -> None:
    parameter = nn.Parameter(torch.ones(1))
    tracked = Tracked()
    average = Average(1.0)
    average.mean, average.count = torch.ones(1), print  # type: ignore[assignment]
    tracked.add("average", average)
    tracked.add("optimizer", torch.optim.SGD([parameter]))
    with pytest.raises(UserError, match="count"):
        tracked.small_states()


def test_sharded_tensors_move_as_their_local_part(tmp_path: Any) -> None:
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        mesh = init_device_mesh("cpu", (1,))
        for joiner_steps in (0, 2):
            source, joiner = (
                sharded(1, 3, mesh, fully_shard),
                sharded(2, joiner_steps, mesh, fully_shard),
            )
            move(source, joiner)
            assert joiner.digest() == source.digest()
            for tracked in (source, joiner):
                torch.manual_seed(9)
                step(tracked)
            assert joiner.digest() == source.digest()
    finally:
        dist.destroy_process_group()


def sharded(seed: int, steps: int, mesh: Any, shard: Any) -> Tracked:
    torch.manual_seed(seed)
    model = shard(Net(), mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    tracked = Tracked()
    tracked.add("model", model)
    tracked.add("optimizer", optimizer)
    tracked.add("scheduler", torch.optim.lr_scheduler.MultiStepLR(optimizer, [1, 3], 0.5))
    for _ in range(steps):
        step(tracked)
    return tracked


def test_what_has_no_shape_yet_is_refused_and_named() -> None:
    tracked = Tracked()
    net = nn.Sequential(nn.Linear(2, 2), nn.LazyBatchNorm1d(), nn.LazyLinear(3))
    with pytest.raises(UserError, match=r"`net\.1\.weight` of a LazyBatchNorm1d has no shape yet"):
        tracked.add("net", net)
    net(torch.zeros(4, 2))
    tracked.add("net", net)
