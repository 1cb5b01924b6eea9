# SPDX-License-Identifier: Apache-2.0
"""Files that torch's C++ writes, of which Python's audit hooks hear nothing."""

import io
import os
from collections.abc import Callable
from typing import Any

import torch


def write_nowhere() -> Callable[[], None]:
    """From here on what torch itself would write to a file of some name is written to nobody's
    memory. What comes back ends that. (An object of Python's that it writes to is no such file.)"""
    return _write_instead(lambda _: io.BytesIO(), lambda save, module, file, **files: None)


def write_to(where: Callable[[str], str]) -> Callable[[], None]:
    """The same, but to the file that is told for each."""
    return _write_instead(
        where, lambda save, module, file, **files: save(module, where(str(file)), **files)
    )


def _write_instead(
    target: Callable[[str], Any], save_to: Callable[..., None]
) -> Callable[[], None]:
    """target: where to write instead of a file of that name; save_to: the same for a module of
    TorchScript, called with torch's own function first"""
    of_torch: Any = torch._C
    scripted: Any = torch.jit.RecursiveScriptModule  # type: ignore[attr-defined]
    writer, save = of_torch.PyTorchFileWriter, scripted.save

    def written(file: Any, *args: Any, **kwargs: Any) -> Any:
        is_named = isinstance(file, str | os.PathLike)
        return writer(target(os.fspath(file)) if is_named else file, *args, **kwargs)

    def saved(module: Any, file: Any, **files: Any) -> None:
        save_to(save, module, file, **files)

    def end() -> None:
        of_torch.PyTorchFileWriter = writer
        scripted.save = save

    of_torch.PyTorchFileWriter = written
    scripted.save = saved
    return end
