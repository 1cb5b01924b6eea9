# SPDX-License-Identifier: Apache-2.0
"""Modules that classes are from, and types whose values say all of themselves."""

PLAIN = frozenset({type(None), bool, int, float, str, bytes, complex})
"""Types of what never changes, and says all of itself."""


def module_of(kind: type) -> str:
    """Name of the module it says it is from; a class may say anything."""
    name: object = kind.__module__
    return name if type(name) is str else ""
