"""Plain attributes of an object of the script, kept as one small object with a state."""

from typing import Any

from torch import Tensor

from trainmover.errors import StateMismatch, UserError
from trainmover.state import encode
from trainmover.state.kinds.attributes import filled, hold_the_same

_NEVER_CHANGE = (int, float, str, bytes, bool, complex, type(None))


class Attributes:
    """Some attributes of `owner`, by name.

    Lists, dicts, sets and deques are changed in place, so that whoever else holds them sees it. Two
    that are one object stay one where both are to hold the same.
    """

    def __init__(self, owner: object, names: tuple[str, ...]) -> None:
        """Raises UserError if one is missing, or is no plain value."""
        self.owner = owner
        self.names = names
        for name in names:
            _check(owner, name)

    def state_dict(self) -> dict[str, Any]:
        state = {}
        for name in self.names:  # Asked for at every step: a comprehension is one more call.
            state[name] = getattr(self.owner, name)
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if state.keys() != set(self.names):
            raise StateMismatch(
                f"The source keeps {sorted(state)} of a {type(self.owner).__name__}, this process "
                f"{sorted(self.names)}.",
                means="This process cannot take the rank.",
                do="Call job.values with the same names wherever the script runs.",
            )
        done: list[object] = []
        for name, value in state.items():
            own = getattr(self.owner, name)
            is_done = any(_are_one(own, one) for one in done)
            if not (hold_the_same(own, value) if is_done else filled(own, value)):
                setattr(self.owner, name, value)
            done.append(getattr(self.owner, name))

    def share(self, first: str, others: list[str]) -> None:
        """Let these be the object that the first one is, if they hold the same."""
        value = getattr(self.owner, first)
        for name in others:
            if hold_the_same(getattr(self.owner, name), value):
                setattr(self.owner, name, value)


def _are_one(value: object, other: object) -> bool:
    """Whether what is written to one may show in the other."""
    if isinstance(value, Tensor) and isinstance(other, Tensor):
        return value.untyped_storage().data_ptr() == other.untyped_storage().data_ptr() != 0
    return value is other and not isinstance(value, _NEVER_CHANGE)


def _check(owner: object, name: str) -> None:
    of = type(owner).__name__
    if not hasattr(owner, name):
        raise UserError(
            f"job.values cannot keep `{name}`: this {of} has no such attribute.",
            means="It would be lost when this rank moves to another machine.",
            do="Set all attributes first, then call job.values(obj, 'name', ...).",
        )
    value = getattr(owner, name)
    try:
        encode.encode(value)
        setattr(owner, name, value)
    except (UserError, AttributeError, TypeError) as error:
        why = error.happened if isinstance(error, UserError) else str(error)
        raise UserError(
            f"job.values cannot keep `{name}` of a {of}: {why}",
            means="It would be lost when this rank moves to another machine.",
            do="Keep numbers, strings, tensors, and lists, dicts or deques of them; an object with "
            "state_dict() and load_state_dict() is kept by job.track.",
        ) from error
