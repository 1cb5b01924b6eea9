# SPDX-License-Identifier: Apache-2.0
"""Refusal of channels between ranks that do not survive a change of members.

They give kernels the addresses of other ranks' memory, which nothing exchanges when a machine is
replaced. A script may import such a library; what connects ranks is refused.
"""

import functools
import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from trainmover.errors import UserError
from trainmover.torch_internals.distributed.making import replace_symmetric_memory

_TORCH = "torch's symmetric memory"
_ENTRIES = {
    "deep_ep": ("DeepEP", ("Buffer", "ElasticBuffer", "HybridEPBuffer")),
    "nvshmem.core": ("NVSHMEM", ("init",)),
    "nvshmem.core.init_fini": ("NVSHMEM", ("init",)),
}
"""By module: the library, and what connects ranks in it."""


class SideChannelFinder(MetaPathFinder):
    """Finder of the modules with such entries: asks the finders after it, and exchanges loaders.

    is_live  whether members may change
    """

    def __init__(self, is_live: Callable[[], bool]) -> None:
        self._is_live = is_live

    def install(self) -> None:
        """Guard what is imported or will be."""
        replace_symmetric_memory(functools.partial(self._guarded, _TORCH))
        sys.meta_path.insert(0, self)
        for name in _ENTRIES.keys() & sys.modules.keys():
            self.guard(sys.modules[name])

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in _ENTRIES:
            return None
        start = sys.meta_path.index(self) + 1 if self in sys.meta_path else 0
        for finder in sys.meta_path[start:]:
            find_spec = getattr(finder, "find_spec", None)
            spec: ModuleSpec | None = find_spec and find_spec(fullname, path, target)
            if spec is not None:
                loader: Any = _GuardingLoader(spec.loader, self)
                spec.loader = loader if spec.loader else None
                return spec
        return None

    def guard(self, module: ModuleType) -> None:
        """Replace the entries that a module has."""
        library, names = _ENTRIES[module.__name__]
        for name in names:
            entry = getattr(module, name, None)
            if isinstance(entry, type):  # Stays a class.
                made: Any = entry
                made.__init__ = self._guarded(library, made.__init__)
            elif entry is not None:
                setattr(module, name, self._guarded(library, entry))

    def _guarded(self, library: str, stock: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(stock)
        def entry(*args: Any, **kwargs: Any) -> Any:
            if self._is_live():
                raise _refusal(library)
            return stock(*args, **kwargs)

        return entry


class _GuardingLoader:
    """Loader that guards what another has imported."""

    def __init__(self, stock: Any, finder: SideChannelFinder) -> None:
        self._stock = stock
        self._finder = finder

    def __getattr__(self, name: str) -> Any:
        if name == "_stock":
            raise AttributeError(name)
        return getattr(self._stock, name)

    def exec_module(self, module: ModuleType) -> None:
        self._stock.exec_module(module)
        self._finder.guard(module)


def _refusal(library: str) -> UserError:
    return UserError(
        f"The script asks for {library}: trainmover does not carry that.",
        means="Ranks would reach into a stranger's memory once a machine is replaced.",
        do="Use torch.distributed's collectives, or run the script under torchrun.",
    )
