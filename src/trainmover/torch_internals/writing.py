"""Files that torch's C++ makes, of which Python's audit hooks hear nothing."""

import os
from collections.abc import Callable
from typing import Any

import torch


def hear_of_files(hear: Callable[[], None]) -> Callable[[], None]:
    """Have `hear` called before torch makes a file of that name, which may raise. What comes back
    ends that. (What `torch.save` writes to an object of Python's is none.)"""
    of_torch: Any = torch._C
    scripted: Any = torch.jit.RecursiveScriptModule  # type: ignore[attr-defined]
    writer, save = of_torch.PyTorchFileWriter, scripted.save

    def written(file: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(file, str | os.PathLike):
            hear()
        return writer(file, *args, **kwargs)

    def saved(*args: Any, **kwargs: Any) -> Any:
        hear()
        return save(*args, **kwargs)

    def end() -> None:
        of_torch.PyTorchFileWriter = writer
        scripted.save = save

    of_torch.PyTorchFileWriter = written
    scripted.save = saved
    return end
