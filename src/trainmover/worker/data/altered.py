# SPDX-License-Identifier: Apache-2.0
"""What the script alters of a loader's samplers and its dataset: `sampler.weights = ...`.

A pass depends on what they were as it began. Whoever resumes it gives them those values, so that
it draws the same indices; what they have become since is compared like any variable of the script.
"""

from collections import deque
from collections.abc import Iterator
from typing import Any

import numpy
from torch import Tensor
from torch.nn import Parameter

from trainmover.errors import UserError
from trainmover.state import tensor_bytes
from trainmover.state.encode import decode, encode
from trainmover.state.kinds.filling import Filling
from trainmover.state.kinds.modules.attributes import ATTRIBUTE_BYTES_MAX, Stored
from trainmover.worker.data.loader_parts import objects_in

_PLAIN = (bool, int, float, str, type(None))
_LISTS = (list, tuple, deque)


def altered(loader: Any, stored: Stored, chosen: Stored = lambda _: ()) -> bytes:
    """As they are now, by object and name; b"" if there are none.

    Numbers, strings, tensors and lists of such: what holds more, as a cache does, is only compared.

    chosen: other attributes of an object that are to be with them, if there is room
    """
    found: dict[str, dict[str, Any]] = {}
    left = ATTRIBUTE_BYTES_MAX
    owners = objects_in(loader).items()
    for which in (stored, chosen):
        for path, owner in owners:
            for name in sorted({*which(owner)} & vars(owner).keys() - found.get(path, {}).keys()):
                value = vars(owner)[name]
                data = _encoded(value) if _nbytes(value) <= left else b""
                if data and len(data) <= left:
                    left -= len(data)
                    found.setdefault(path, {})[name] = data
    return encode(found) if found else b""


def chooses(value: object) -> bool:
    """Whether it may be places of samples, or how likely each is."""
    if isinstance(value, list | tuple):
        return bool(value) and {*map(type, value)} <= {int, float, bool}
    return isinstance(value, Tensor | numpy.ndarray) and not isinstance(value, Parameter)


def put_back(loader: Any, values: bytes) -> None:
    """Make them what `altered` gave, where they are here."""
    owners = objects_in(loader)
    for path, attributes in decode(values).items():
        for name, data in attributes.items():
            if path in owners:
                Filling().put(owners[path], name, decode(data))


def unlike(loader: Any, stored: Stored, values: bytes) -> Iterator[str]:
    """Those that the script alters and that are not among these values: nobody was given them."""
    known = decode(values) if values else {}
    for path, owner in objects_in(loader).items():
        for name in sorted({*stored(owner)} & vars(owner).keys()):
            if name not in known.get(path, {}):
                yield f"{path}.{name}"


def _nbytes(value: Any) -> float:
    """Least that it takes; more than anything if it is of another kind."""
    if isinstance(value, Tensor):
        is_copied = tensor_bytes.is_plain(value) and not value.requires_grad
        return value.nbytes if is_copied else float("inf")
    if isinstance(value, numpy.ndarray | numpy.generic):
        return value.nbytes
    if type(value) in _LISTS:
        plain = len(value) <= ATTRIBUTE_BYTES_MAX and {*map(type, value)} <= {*_PLAIN}
        return len(value) if plain else float("inf")
    return 0 if type(value) in _PLAIN else float("inf")


def _encoded(value: Any) -> bytes:
    try:
        return encode(value)
    except UserError:
        return b""
