"""Files that torch's C++ writes, of which Python's audit hooks hear nothing."""

import io
import os
from collections.abc import Callable
from typing import Any

import torch


def write_nowhere() -> Callable[[], None]:
    """From here on what torch itself would write to a file of some name is written to nobody's
    memory. What comes back ends that. (An object of Python's that it writes to is no such file.)"""
    of_torch: Any = torch._C
    scripted: Any = torch.jit.RecursiveScriptModule  # type: ignore[attr-defined]
    writer, save = of_torch.PyTorchFileWriter, scripted.save

    def written(file: Any, *args: Any, **kwargs: Any) -> Any:
        return writer(
            io.BytesIO() if isinstance(file, str | os.PathLike) else file, *args, **kwargs
        )

    def end() -> None:
        of_torch.PyTorchFileWriter = writer
        scripted.save = save

    of_torch.PyTorchFileWriter = written
    scripted.save = lambda *_, **__: None
    return end
