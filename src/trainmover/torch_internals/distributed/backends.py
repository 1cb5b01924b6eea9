# SPDX-License-Identifier: Apache-2.0
"""What `torch.backends` is set to: kernels are chosen by it, and so are the bits of numbers.

How exactly torch computes in float32 it lets be set in an old way and in a new one, and to ask in
the old way raises an error once a script has set something in the new one.
https://docs.pytorch.org/docs/stable/notes/cuda.html#tensorfloat-32-tf32-on-ampere-and-later-devices
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from typing import Any

import torch

PREFIX = "torch.backends."
MIXED = "as fp32_precision says"
"""What the old way comes to where it cannot tell."""

_SWITCHES = (
    *("cudnn.enabled", "cudnn.benchmark", "cudnn.deterministic", "mkldnn.enabled"),
    "cuda.matmul.allow_fp16_reduced_precision_reduction",
    "cuda.matmul.allow_bf16_reduced_precision_reduction",
    *("opt_einsum.enabled", "opt_einsum.strategy"),
)
_ASKED = {
    "cuda.flash_sdp_enabled": "cuda.enable_flash_sdp",
    "cuda.mem_efficient_sdp_enabled": "cuda.enable_mem_efficient_sdp",
    "cuda.math_sdp_enabled": "cuda.enable_math_sdp",
    "cuda.cudnn_sdp_enabled": "cuda.enable_cudnn_sdp",
    "mha.get_fastpath_enabled": "mha.set_fastpath_enabled",
}
"""Functions, and those that set what they tell."""
_OLD = ("cudnn.allow_tf32", "cuda.matmul.allow_tf32")
_NEW = (
    *("fp32_precision", "cuda.matmul.fp32_precision"),
    *("cudnn.fp32_precision", "cudnn.conv.fp32_precision", "cudnn.rnn.fp32_precision"),
    *("mkldnn.fp32_precision", "mkldnn.matmul.fp32_precision"),
    *("mkldnn.conv.fp32_precision", "mkldnn.rnn.fp32_precision"),
)


@dataclass(frozen=True)
class Backend:
    """One thing that is set there.

    setters  functions by which scripts may set it; PREFIX: they may store to it. How exact products
             are is set in both ways, of which each sets parts of the other
    """

    ask: Callable[[], Any]
    set_to: Callable[[Any], Any]
    setters: tuple[str, ...] = ("set_float32_matmul_precision", PREFIX)


def backends() -> dict[str, Backend]:
    """By names for people. Put back in this order all are what they were: the old way sets parts of
    the new one, and what holds for all backends holds where a backend says nothing."""
    found = {f"{PREFIX}{path}": _stored(path) for path in _SWITCHES}
    for asks, sets in _ASKED.items():
        ask, set_to = attrgetter(asks, sets)(torch.backends)
        found[f"{PREFIX}{asks}()"] = Backend(ask, set_to, (sets.rpartition(".")[2],))
    found["torch's matmul precision"] = _old(
        Backend(torch.get_float32_matmul_precision, torch.set_float32_matmul_precision)
    )
    found |= {f"{PREFIX}{path}": _old(_stored(path)) for path in _OLD}
    return found | {f"{PREFIX}{path}": _stored(path) for path in _NEW}


def _stored(path: str) -> Backend:
    return Backend(partial(attrgetter(path), torch.backends), partial(_set, path))


def _set(path: str, value: Any) -> None:
    owner, _, name = path.rpartition(".")
    setattr(attrgetter(owner)(torch.backends) if owner else torch.backends, name, value)


def _old(one: Backend) -> Backend:
    return Backend(partial(_asked, one.ask), partial(_told, one.set_to), one.setters)


def _asked(ask: Callable[[], Any]) -> Any:
    try:
        return ask()
    except RuntimeError:
        return MIXED


def _told(set_to: Callable[[Any], Any], value: Any) -> None:
    if value != MIXED:
        set_to(value)
