# SPDX-License-Identifier: Apache-2.0
"""Calls that were refused, and whose script caught that: a shadow run is refused as well."""

_KINDS: dict[str, type[Exception]] = {
    kind.__name__: kind for kind in (RuntimeError, ValueError, TypeError, NotImplementedError)
}
"""torch's own errors are RuntimeErrors."""


def refusal_of(error: Exception) -> tuple[str, str]:
    """Kind and text, for a record.

    >>> refusal_of(ValueError("two tensors"))
    ('ValueError', 'two tensors')
    """
    kinds = (kind.__name__ for kind in type(error).__mro__ if kind.__name__ in _KINDS)
    return next(kinds, RuntimeError.__name__), str(error)


def refused(refusal: tuple[str, str]) -> Exception:
    """The error again."""
    kind, text = refusal
    return _KINDS.get(kind, RuntimeError)(text)
