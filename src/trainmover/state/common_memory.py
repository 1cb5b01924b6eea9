"""Tracked objects that have memory in common: what is written to one shows in the other.

`optimizer.load_state_dict(best)` copies nothing: from then on, what a script keeps as its best is
what the optimizer works with. Both travel apart, and would be two on another machine.
"""

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn

from trainmover.errors import StateMismatch
from trainmover.state.items import HasState
from trainmover.state.placing import bulk_leaves
from trainmover.state.tensor_bytes import is_plain


def in_common(objects: Iterable[tuple[str, HasState]]) -> list[list[str]]:
    """Names of those that have some tensor's memory in common; modules and optimizers alone, as
    torch has them, have none that they do not have wherever the script runs."""
    known = list(objects)
    if all(isinstance(obj, nn.Module | torch.optim.Optimizer) for _, obj in known):
        return []
    owners: dict[int, set[str]] = {}
    for name, obj in known:
        for tensor in bulk_leaves(obj).tensors:
            if address := _address(tensor):
                owners.setdefault(address, set()).add(name)
    together = {tuple(sorted(names)) for names in owners.values() if len(names) > 1}
    return [list(names) for names in sorted(together)]


def parted(then: Sequence[Sequence[str]], now: Sequence[Sequence[str]]) -> str:
    """What had memory in common then and has not now, in words; "": nothing."""
    missing = [names for names in then if list(names) not in now]
    return f"`{missing[0][0]}` and `{missing[0][1]}` have memory in common" if missing else ""


def check(theirs: Sequence[Sequence[str]], mine: Sequence[Sequence[str]]) -> None:
    """Raises StateMismatch if the rank whose state this process has taken had what it has not."""
    if why := parted(theirs, mine):
        raise StateMismatch(
            f"{why} on the rank, and have not here.",
            means="What steps write to one would not show in the other, as it does there: this "
            "process cannot take the rank.",
            do="Keep copies: optimizer.load_state_dict(copy.deepcopy(state)), since it goes on "
            "with the very tensors that it is given.",
        )


def _address(tensor: Tensor) -> int:
    """0 where nothing lies."""
    if not is_plain(tensor) or not tensor.numel():
        return 0
    return tensor.untyped_storage().data_ptr()
