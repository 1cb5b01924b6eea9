"""What a step has given its caller, where a row does not tell: a dict, a tuple, a tensor.

The lines behind the step go on with it. If its rank is lost there, whoever takes it runs them, and
has to be given what they were given. So it goes to the buddy before the script gets it.
"""

from typing import Any

from torch import Tensor

from trainmover.errors import UserError
from trainmover.state.encode import decode, encode
from trainmover.torch_internals.trees import tree_map

BYTES_MAX = 64 * 1024
"""It goes with each step, and the script waits for it."""


def packed(result: Any) -> bytes:
    """b"" for what a row tells, for nothing, and for what cannot be sent, or is too large."""
    if result is None or isinstance(result, float) or type(result) in (str, bool):
        return b""
    if isinstance(result, Tensor) and result.numel() == 1:
        return b""
    fits = True

    def weigh(leaf: Any) -> Any:
        nonlocal fits
        if isinstance(leaf, Tensor):
            here = leaf.device.type == "cpu" and not leaf.requires_grad
            fits = fits and here and leaf.nbytes <= BYTES_MAX
        return leaf

    tree_map(weigh, result)
    if not fits:
        return b""
    try:
        data = encode(result)
    except UserError:
        return b""
    return data if len(data) <= BYTES_MAX else b""


def unpacked(data: bytes) -> Any:
    """What was packed."""
    return decode(data)
