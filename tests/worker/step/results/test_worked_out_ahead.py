"""What a step works out of its variables behind its gate is known at it, if to do so only reads."""

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from made_steps import Gate, Steps
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor

from trainmover.worker.step.results.foreseen import AHEAD_CALLS
from trainmover.worker.step.results.given import packed
from trainmover.worker.step.results.reported import LOOKS_MAX

count = 0
weights = nn.Parameter(torch.ones(3))
optimizer = torch.optim.SGD([weights], lr=0.5)
seen: list[float] = []
tensors = [torch.ones(1)]
NAMES = ["a", "b", "c"]


def accuracy(output: Tensor, target: Tensor, topk: tuple[int, ...] = (1,)) -> list[Tensor]:
    """As in torchvision's references."""
    with torch.inference_mode():
        largest, size = max(topk), target.size(0)
        if target.ndim == 2:
            target = target.max(dim=1)[1]
        _, pred = output.topk(largest, 1, True, True)
        correct = pred.t().eq(target[None])
        found = []
        for k in topk:
            correct_k = correct[:k].flatten().sum(dtype=torch.float32)
            found.append(correct_k * (100.0 / size))
        return found


def counted(output: Tensor) -> Tensor:
    global count
    count += 1
    return output.sum() * count


def kept(output: Tensor) -> Tensor:
    seen.append(output.sum().item())
    return output.max()


def written(output: Tensor) -> Tensor:
    output += 1
    return output.max()


class Meter:
    def __init__(self) -> None:
        self.calls = 0

    def mean(self, value: Tensor) -> float:
        self.calls += 1
        return value.mean().item() * self.calls


def given(number: float) -> tuple[Tensor, Tensor]:
    scores = torch.arange(12.0).reshape(4, 3).sin() * number
    return scores, (torch.arange(4) * int(8 * number)) % 3


# --- what only reads --------------------------------------------------------------------------


def of_an_expression(gate: Gate, number: float) -> Any:
    output, target = given(number)
    loss = output.sum()
    gate()
    return loss.item(), (output.argmax(1) == target).sum().item()


def of_variables(gate: Gate, number: float) -> Any:
    output, target = given(number)
    gate()
    with torch.no_grad():
        pred = output.argmax(dim=1)
        share = (pred == target).float().mean()
        sure = output.exp().max(dim=1).values.mean()
    total = len(target)
    total *= 2
    return {"share": share.item(), "sure": sure.item(), "total": total, "all": float(total > 3)}


def of_a_function(gate: Gate, number: float) -> Any:
    output, target = given(number)
    gate()
    seen.clear()
    first, second = accuracy(output, target, topk=(1, 2))
    return first.item(), second


def of_libraries(gate: Gate, number: float) -> Any:
    output, target = given(number)
    gate()
    error = F.cross_entropy(output, target, reduction="none")
    return torch.stack([error.mean(), error.max()]), math.exp(error.mean().item())


def of_a_comprehension(gate: Gate, number: float) -> Any:
    batch = {"output": given(number)[0]}
    gate()
    return {name: batch["output"][:, at].mean().item() for at, name in enumerate(NAMES)}


def in_a_branch(gate: Gate, number: float) -> Any:
    output, _ = given(number)
    if number > 0:
        gate()
        optimizer.zero_grad()
    return output.abs().max().item() * 2


def with_a_word(gate: Gate, number: float) -> Any:
    loss = torch.tensor(number)
    gate()
    return loss, "word", True


READ = [
    *(of_an_expression, of_variables, of_a_function, of_libraries, of_a_comprehension),
    *(in_a_branch, with_a_word),
]


@pytest.mark.parametrize("function", READ)
def test_what_only_reads_is_known(function: Any) -> None:
    steps = Steps(function)
    for call in range(AHEAD_CALLS + 1):
        result = steps.make(0.125 * (call + 1))
        assert steps.seen == b""
        assert steps.sent == packed(result) != b""
    for number in (1.5, 1.75, 1.75, 0.25):
        result = steps.make(number)
        assert steps.seen == packed(result)
        assert steps.sent == b""
    for _ in range(LOOKS_MAX):
        steps.make(3.5)
    assert not steps.blind


# --- what does more ---------------------------------------------------------------------------


def by_a_count(gate: Gate, number: float) -> Any:
    output, _ = given(number)
    gate()
    return counted(output)


def by_a_list(gate: Gate, number: float) -> Any:
    output, _ = given(number)
    gate()
    return kept(output) * 2


def by_a_write(gate: Gate, number: float) -> Any:
    output, _ = given(number)
    gate()
    return written(output) * 2


def by_a_method(gate: Gate, number: float, meter: Meter = Meter()) -> Any:  # noqa: B008
    output, _ = given(number)
    gate()
    return meter.mean(output)


def by_a_global(gate: Gate, number: float) -> Any:
    output, _ = given(number)
    gate()
    return output.sum().item() * count


def by_a_global_list(gate: Gate, number: float) -> Any:
    output, _ = given(number)
    gate()
    return output.sum().item() * len(tensors)


def by_what_a_dict_is_given(gate: Gate, number: float) -> Any:
    output, _ = given(number)
    stats: dict[str, Any] = {}
    gate()
    if number > 1:
        stats.update(top=output.max().item())
    return stats


def by_a_sort(gate: Gate, number: float) -> Any:
    errors = given(number)[0].flatten().tolist()
    gate()
    errors.sort()
    return errors[0] * 2


def by_a_sort_on_the_way(gate: Gate, number: float) -> Any:
    errors = given(number)[0].flatten().tolist()
    gate()
    done = errors.sort()
    return errors[0] * 2, done


def by_chance(gate: Gate, number: float) -> Any:
    output, _ = given(number)
    gate()
    return F.dropout(output).sum().item(), torch.rand(1)


def by_setting(gate: Gate, number: float) -> Any:
    output, _ = given(number)
    gate()
    return output.sum().item() * 2, optimizer.param_groups[0]["lr"]


def by_parameter(gate: Gate, number: float) -> Any:
    gate()
    return weights.norm().item() * number


def by_one_of_two_ways(gate: Gate, number: float) -> Any:
    output, _ = given(number)
    gate()
    if number > 2:
        return output.min() * 2
    return output.max() * 2


def by_a_branch(gate: Gate, number: float) -> Any:
    output, _ = given(number)
    gate()
    share = output.max() * 2
    if number > 2:
        share = output.min() * 2
    return share


def by_what_is_written_between(gate: Gate, number: float) -> Any:
    output, _ = given(number)
    gate()
    if number > 1:
        output.clamp_(max=0.1)
    return output.max() * 2


def by_what_is_stored_between(gate: Gate, number: float) -> Any:
    output, _ = given(number)
    gate()
    output[0] = 7.0
    return output.max() * 2


def by_what_the_gate_gives(gate: Gate, number: float) -> Any:
    output, _ = given(number)
    done = gate()  # type: ignore[func-returns-value]
    return output.max() * 2, done


def in_a_loop(gate: Gate, number: float) -> Any:
    output, _ = given(number)
    for _ in range(1):
        gate()
        output = output + 1
    return output.max() * 2


MORE = [
    *(by_a_count, by_a_list, by_a_write, by_a_method, by_chance, by_setting, by_parameter),
    *(by_one_of_two_ways, by_a_branch, by_what_is_written_between, by_what_is_stored_between),
    *(
        by_a_sort,
        by_a_sort_on_the_way,
        by_what_the_gate_gives,
        by_a_global,
        by_a_global_list,
        by_what_a_dict_is_given,
        in_a_loop,
    ),
]


@pytest.mark.parametrize("function", MORE)
def test_what_does_more_is_not_run_at_the_gate(function: Any) -> None:
    """And so all that it does is done once for each step."""
    global count
    count, steps = 0, Steps(function)
    seen.clear()
    for call in range(LOOKS_MAX + 1):
        steps.make(0.125 * (call + 1))
        assert steps.seen == b""
    assert steps.blind == [LOOKS_MAX]
    assert count == (LOOKS_MAX + 1 if function is by_a_count else 0)
    assert len(seen) == (LOOKS_MAX + 1 if function is by_a_list else 0)


def test_no_generator_and_no_gradient_is_touched() -> None:
    steps, before = Steps(of_libraries), torch.get_rng_state()
    for call in range(AHEAD_CALLS + 2):
        steps.make(0.125 * (call + 1))
    assert torch.equal(torch.get_rng_state(), before)
    assert weights.grad is None


def test_one_that_comes_to_something_else_is_no_longer_believed() -> None:
    """A tensor that is written to by what it is given to, as the source does not show."""
    written: list[Tensor] = []

    def of_a_tensor(gate: Gate, number: float) -> Any:
        output, _ = given(number)
        gate()
        log(output, written)
        return output.sum().item() * 2

    steps = Steps(of_a_tensor)
    for call in range(AHEAD_CALLS + 2):
        result = steps.make(0.125 * (call + 1))
    assert steps.seen == packed(result)
    written.append(torch.ones(1))
    result = steps.make(2.5)
    assert steps.sent == packed(result) != steps.seen
    steps.make(3.5)
    assert steps.seen == b""


def log(output: Tensor, written: list[Tensor]) -> None:
    for one in written:
        output += one


def test_what_is_updated_is_not_read() -> None:
    """Not where it is as it was in the first steps either, as in a warm-up from zero."""
    model = nn.Linear(2, 2)

    def of_a_view(gate: Gate, number: float) -> Any:
        weight = model.weight.detach()
        gate()
        return weight.norm().item() * number

    for kept, known in ((model.parameters, False), (tuple, True)):
        steps = Steps(of_a_view, kept)
        for call in range(AHEAD_CALLS + 2):
            steps.make(0.125 * (call + 1))
        assert bool(steps.seen) == known


def test_memory_of_a_shard_is_updated_with_it(group_of_one: None) -> None:
    shard = DTensor.from_local(torch.ones(3), init_device_mesh("cpu", (1,)))

    def of_its_local_part(gate: Gate, number: float) -> Any:
        local = shard.to_local()
        gate()
        return local.norm().item() * number

    for kept, known in (([shard], False), ([], True)):
        steps = Steps(of_its_local_part, lambda kept=kept: kept)  # type: ignore[misc]
        for call in range(AHEAD_CALLS + 2):
            steps.make(0.125 * (call + 1))
        assert bool(steps.seen) == known
