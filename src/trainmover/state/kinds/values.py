"""Plain attributes of an object of the script, kept as one small object with a state."""

from collections import deque
from typing import Any

from trainmover.errors import StateMismatch, UserError
from trainmover.state import encode


class Attributes:
    """Some attributes of `owner`, by name.

    Lists, dicts, sets and deques are changed in place, so that whoever else holds them sees it.
    """

    def __init__(self, owner: object, names: tuple[str, ...]) -> None:
        """Raises UserError if one is missing, or is no plain value."""
        self.owner = owner
        self.names = names
        for name in names:
            _check(owner, name)

    def state_dict(self) -> dict[str, Any]:
        state = {}
        for name in self.names:
            value = getattr(self.owner, name)
            state[name] = list(value) if isinstance(value, deque) else value
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if state.keys() != set(self.names):
            raise StateMismatch(
                f"The source keeps {sorted(state)} of a {type(self.owner).__name__}, this process "
                f"{sorted(self.names)}.",
                means="This process cannot take the rank.",
                do="Call job.values with the same names wherever the script runs.",
            )
        for name, value in state.items():
            self._put(name, value)

    def _put(self, name: str, value: Any) -> None:
        now = getattr(self.owner, name)
        if isinstance(now, deque):
            now.clear()
            now.extend(value)
        elif type(now) is list and type(value) is list:
            now[:] = value
        elif isinstance(now, dict | set) and type(now) is type(value):
            now.clear()
            now.update(value)
        else:
            setattr(self.owner, name, value)


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, deque) else value


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
        encode.encode(_plain(value))
        setattr(owner, name, value)
    except (UserError, AttributeError, TypeError) as error:
        why = error.happened if isinstance(error, UserError) else str(error)
        raise UserError(
            f"job.values cannot keep `{name}` of a {of}: {why}",
            means="It would be lost when this rank moves to another machine.",
            do="Keep numbers, strings, tensors, and lists, dicts or deques of them; an object with "
            "state_dict() and load_state_dict() is kept by job.track.",
        ) from error
