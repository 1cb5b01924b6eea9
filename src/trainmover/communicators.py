# SPDX-License-Identifier: Apache-2.0
"""Which communicators there are, and which one is taken: known without torch, in every room."""

import importlib.util

from trainmover.errors import UserError

NAMES = ("native", "gloo")

STAGED, NCCL = "staged", "nccl"
GPU_NAMES = (STAGED, NCCL)
"""What carries tensors of a GPU where a script asks for nccl: the host's communicator, through host
memory, or NCCL itself."""


def native_is_built() -> bool:
    """Whether this installation has the extension."""
    return importlib.util.find_spec("trainmover._native") is not None


def default() -> str:
    """The native communicator where it is built."""
    return "native" if native_is_built() else "gloo"


def described(name: str) -> str:
    """For people: which one carries the groups, and why it is not the better one."""
    if name == "gloo" and not native_is_built():
        return "gloo (the native communicator was not built here: all is slower)"
    return name


def checked(name: str) -> str:
    """The name itself. Raises UserError for one that cannot be used here."""
    if name not in NAMES:
        raise UserError(
            f"{name} is no communicator of this version of trainmover.",
            means="Nothing was started.",
            do=f"Give one of: {', '.join(NAMES)}",
        )
    if name == "native" and not native_is_built():
        raise UserError(
            "The native communicator is not part of this installation: it was not built.",
            means="Nothing was started; groups can only be carried by gloo here.",
            do="Build it with `make setup` (needs a C++20 compiler), or choose gloo.",
        )
    return name


def checked_gpu(gpu: str, name: str) -> str:
    """What carries tensors of a GPU, beside the communicator `name`. Raises UserError."""
    if gpu not in GPU_NAMES:
        raise UserError(
            f"{gpu} carries no tensors of a GPU in this version of trainmover.",
            means="Nothing was started.",
            do=f"Give one of: {', '.join(GPU_NAMES)}",
        )
    if gpu == NCCL and name != "native":
        raise UserError(
            f"NCCL goes beside the native communicator only, not beside {name}.",
            means="Nothing was started.",
            do="Leave --comm out, or give --gpu-comm staged.",
        )
    return gpu
