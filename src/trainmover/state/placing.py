# SPDX-License-Identifier: Apache-2.0
"""One tracked object taken apart into structure and live tensors, and put together from others.

The aim is that bytes from another machine land directly in the memory that the object trains
with: `destinations` says where each tensor goes, and `load_bulk` then only has to set what is not a
tensor. That works for an object whose state_dict() hands out its own storage, as modules and
optimizers do. For others, and for tensors the object does not have yet (an optimizer before its
first step), the values are received beside it and given to its load_state_dict().
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from trainmover.errors import StateMismatch, UserError
from trainmover.state import encode
from trainmover.state.encode import Hole
from trainmover.state.items import HasState
from trainmover.state.kinds.filling import filled

_AS_TORCH = {"state", "param_groups"}
"""What torch's own optimizers have in their state; one around another may have what it likes."""


class Leaves(NamedTuple):
    """A state_dict taken apart. The tensors are live and local: to write there is to load."""

    structure: bytes
    tensors: list[Tensor]


def bulk_leaves(obj: HasState) -> Leaves:
    """Structure (everything but the tensors' bytes) and live tensors of the object's state.

    Of a DTensor the local part. Non-persistent buffers are in no state_dict: the script that builds
    the object fills them. Raises UserError for state that cannot be sent.
    """
    structure, tensors = encode.split(obj.state_dict())
    return Leaves(structure, [encode.as_local(tensor) for tensor in tensors])


def destinations(obj: HasState, structure: bytes) -> list[Tensor]:
    """Where the tensors of `structure` are to be received, in its order.

    The object's own storage wherever it has that tensor, new CPU memory where it does not have it
    yet. Raises StateMismatch, naming the tensor, if the object has it in another shape or dtype, or
    if a module has it not at all.
    """
    given = encode.holes(structure)
    own = _fitting(obj, given)
    return [
        encode.as_local(own[hole.path][1])
        if hole.path in own
        else torch.empty(hole.shape, dtype=hole.dtype)
        for hole in given
    ]


@torch.no_grad()
def load_bulk(obj: HasState, structure: bytes, tensors: Sequence[Tensor]) -> None:
    """Make the object's state the one described by `structure` and `tensors`.

    structure  of the source's `bulk_leaves`
    tensors    its values, in its order; those that `destinations` gave are not copied again, others
               may be kept by the object
    Raises StateMismatch, naming the tensor, if they cannot fit.
    """
    given = encode.holes(structure)
    own = _fitting(obj, given)
    values = dict(zip([hole.path for hole in given], tensors, strict=True))
    if own.keys() != values.keys() or not _hands_out_its_storage(obj, own):
        _load_whole(obj, encode.join(structure, _as_own_kind(obj, given, tensors, own)))
        return
    for path, (_, tensor) in own.items():
        _fill(encode.as_local(tensor), values[path])
    if _same_but_bytes(obj, structure):
        return
    value = encode.join(structure, [own[hole.path][1] for hole in given])
    if isinstance(obj, torch.optim.Optimizer) and value.keys() >= _AS_TORCH:
        _set_values(obj, value)
        if _same_but_bytes(obj, structure):
            return
    _load_whole(obj, value)


def _own(obj: HasState) -> dict[str, tuple[Hole, Tensor]]:
    structure, tensors = encode.split(obj.state_dict())
    found = encode.holes(structure)
    own = {hole.path: (hole, tensor) for hole, tensor in zip(found, tensors, strict=True)}
    if len(own) != len(found):
        raise UserError(
            f"Two tensors in the state of a {type(obj).__name__} have the same path.",
            means="Which is which could not be told on another machine.",
            do="Use keys without dots in state_dict().",
        )
    return own


def _fitting(obj: HasState, given: Sequence[Hole]) -> dict[str, tuple[Hole, Tensor]]:
    """Its own, with room for what is given. A buffer may have any shape: a queue grows until it is
    full. Raises StateMismatch if anything else is other here."""
    own = _own(obj)
    holes = {path: hole for path, (hole, _) in own.items()}
    grown = _reshaped_buffers(obj, given, holes)
    _check_fit(obj, given, holes | {hole.path: hole for hole in grown})
    if grown and isinstance(obj, nn.Module):
        for hole in grown:
            path, _, name = hole.path.rpartition(".")
            setattr(obj.get_submodule(path), name, own[hole.path][1].new_empty(hole.shape))
        return _own(obj)
    return own


def _reshaped_buffers(obj: HasState, given: Sequence[Hole], own: Mapping[str, Hole]) -> list[Hole]:
    if not isinstance(obj, nn.Module):
        return []
    buffers = {name for name, _ in obj.named_buffers()}
    known = [(hole, own[hole.path]) for hole in given if hole.path in buffers & own.keys()]
    plain = [(hole, mine) for hole, mine in known if not (hole.sharded or mine.sharded)]
    return [hole for hole, mine in plain if hole.shape != mine.shape and hole.dtype == mine.dtype]


def _check_fit(obj: HasState, given: Iterable[Hole], own: Mapping[str, Hole]) -> None:
    given_paths = set()
    for hole in given:
        given_paths.add(hole.path)
        mine = own.get(hole.path)
        if mine is not None and mine.fit != hole.fit:
            raise _mismatch(obj, f"`{hole.path}` is {mine.fit} here and {hole.fit} at the source")
        if mine is None and isinstance(obj, nn.Module):
            raise _mismatch(obj, f"`{hole.path}` exists only at the source")
    if isinstance(obj, nn.Module) and (missing := own.keys() - given_paths):
        raise _mismatch(obj, f"`{min(missing)}` does not exist at the source")


def _mismatch(obj: object, what: str) -> StateMismatch:
    return StateMismatch(
        f"The state of a {type(obj).__name__} does not fit: {what}.",
        means="This process cannot take the rank: it built something else than the source did.",
        do="A script must build the same objects for a rank wherever it runs.",
    )


def _hands_out_its_storage(obj: HasState, own: Mapping[str, tuple[Hole, Tensor]]) -> bool:
    """Whether a second state_dict() shows the same memory while the first one is alive."""
    again = _own(obj)
    return again.keys() == own.keys() and all(
        encode.as_local(tensor).data_ptr() == encode.as_local(again[path][1]).data_ptr()
        for path, (_, tensor) in own.items()
    )


def _fill(own: Tensor, given: Tensor) -> None:
    in_place = own.data_ptr() == given.data_ptr() and own.stride() == given.stride()
    if not in_place or own.device != given.device:
        own.copy_(given)


def _same_but_bytes(obj: HasState, structure: bytes) -> bool:
    return bulk_leaves(obj).structure == structure


def _set_values(optimizer: torch.optim.Optimizer, value: Any) -> None:
    """Set what is not a tensor, in place: schedulers and compiled code keep their objects."""
    own = optimizer.state_dict()
    groups, given_groups = optimizer.param_groups, value["param_groups"]
    if [g["params"] for g in own["param_groups"]] != [g["params"] for g in given_groups]:
        raise _mismatch(optimizer, "its parameter groups hold other parameters than at the source")
    for group, given in zip(groups, given_groups, strict=True):
        _update(group, {key: entry for key, entry in given.items() if key != "params"})
    # The dicts in here are those of `optimizer.state` themselves, under each parameter's index.
    _update(own["state"], value["state"])


def _update(own: dict[Any, Any], given: Mapping[Any, Any]) -> None:
    for key, entry in given.items():
        if isinstance(entry, dict) and isinstance(own.get(key), dict):
            _update(own[key], entry)
        elif not isinstance(entry, Tensor) and not filled(own.get(key), entry):
            own[key] = entry


def _load_whole(obj: HasState, value: Any) -> None:
    try:
        with _same_defaults(obj):
            obj.load_state_dict(value)
    except (RuntimeError, ValueError, KeyError, TypeError) as error:
        raise _mismatch(obj, f"its load_state_dict() refused the state: {error}") from error


@contextmanager
def _same_defaults(obj: object) -> Iterator[None]:
    """Torch adds to what new groups of an optimizer get, as it loads; the rank has loaded none."""
    defaults = getattr(obj, "defaults", None)
    if not isinstance(obj, torch.optim.Optimizer) or not isinstance(defaults, dict):
        yield  # One around another may have none of its own.
        return
    before = {*defaults}
    yield
    for name in {*obj.defaults} - before:
        del obj.defaults[name]


def _as_own_kind(
    obj: HasState,
    given: Sequence[Hole],
    tensors: Sequence[Tensor],
    own: Mapping[str, tuple[Hole, Tensor]],
) -> list[Tensor]:
    """The given values, those of sharded tensors as DTensors over this process's own mesh."""
    return [
        _sharded_like(_model_of(obj, hole, own), hole, tensor) if hole.sharded else tensor
        for hole, tensor in zip(given, tensors, strict=True)
    ]


def _model_of(obj: HasState, hole: Hole, own: Mapping[str, tuple[Hole, Tensor]]) -> Tensor:
    """A DTensor that is sharded as the one missing here: itself, or the parameter it belongs to."""
    if hole.path in own:
        return own[hole.path][1]
    index = re.match(r"state\[(\d+)\]\.", hole.path)
    if isinstance(obj, torch.optim.Optimizer) and index:
        params: list[Tensor] = [param for group in obj.param_groups for param in group["params"]]
        if int(index[1]) < len(params):
            return params[int(index[1])]
    raise _mismatch(obj, f"nothing here says how the sharded `{hole.path}` is laid out")


def _sharded_like(model: Any, hole: Hole, local: Tensor) -> Tensor:
    from torch.distributed.tensor import DTensor

    if not isinstance(model, DTensor) or tuple(model.to_local().shape) != hole.shape:
        raise _mismatch(model, f"`{hole.path}` is sharded at the source and not here")
    return DTensor.from_local(
        local.to(model.device),
        model.device_mesh,
        model.placements,
        run_check=False,
        shape=model.shape,
        stride=model.stride(),
    )
