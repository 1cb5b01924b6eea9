"""`replace` for frozen dataclasses, ten times as quick as the library's. Pure.

A decision replaces values some ten times, and a job has many fields. The library goes through them
one by one and calls the constructor, which does the same. None of our values does anything when it
is made, so a copy of what it holds is the same value.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import replace
else:

    def replace(value: Any, **changes: Any) -> Any:
        """The value with some fields changed. Raises TypeError for one that it has not."""
        held = value.__dict__
        if not changes.keys() <= held.keys():
            unknown = sorted(changes.keys() - held.keys())
            raise TypeError(f"{type(value).__name__} has no field {', '.join(unknown)}")
        new = object.__new__(type(value))
        new.__dict__.update(held, **changes)
        return new


__all__ = ["replace"]
