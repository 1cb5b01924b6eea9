"""An object of a script's that tracks some attributes of another."""

from typing import Any


class Kept:
    def __init__(self, owner: object, names: tuple[str, ...]) -> None:
        self.owner, self.names = owner, names

    def state_dict(self) -> dict[str, Any]:
        return {name: getattr(self.owner, name) for name in self.names}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for name, value in state.items():
            setattr(self.owner, name, value)
