"""DistributedDataParallel: flags that no state_dict has."""

from torch.nn.parallel import DistributedDataParallel

SYNC_FLAGS = ("require_forward_param_sync", "require_backward_grad_sync")


def flags_of(wrapper: DistributedDataParallel) -> list[bool]:
    """Whether the next forward begins with a broadcast of buffers; whether backward reduces."""
    return [bool(getattr(wrapper, flag)) for flag in SYNC_FLAGS]


def set_flags(wrapper: DistributedDataParallel, values: list[bool]) -> None:
    """What `flags_of` gave."""
    for flag, value in zip(SYNC_FLAGS, values, strict=True):
        setattr(wrapper, flag, value)
