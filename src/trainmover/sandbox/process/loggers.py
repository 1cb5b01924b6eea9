# SPDX-License-Identifier: Apache-2.0
"""What a run of the script may do to the loggers of its process."""

import contextlib
import logging
from dataclasses import dataclass
from typing import Any

from trainmover.sandbox.process.settings import Setting, attribute, merged_mapping


@dataclass(frozen=True)
class _Logger:
    """One logger as it stood. Untouched ones are left out of what is kept."""

    level: int
    propagate: bool
    disabled: bool
    handlers: tuple[logging.Handler, ...]
    filters: tuple[Any, ...]


_UNTOUCHED = _Logger(logging.NOTSET, True, False, (), ())


def of_loggers() -> list[Setting]:
    """Handlers that a run has added are closed: their files are complete."""
    return [
        Setting("the loggers", _read, _write, merged_mapping),
        Setting("logging.disable", _disabled, logging.disable),
        attribute(logging, "raiseExceptions"),
        attribute(logging, "_warnings_showwarning"),
    ]


def _loggers() -> dict[str, logging.Logger]:
    known = logging.Logger.manager.loggerDict.items()
    named = {name: logger for name, logger in known if isinstance(logger, logging.Logger)}
    return {"": logging.getLogger(), **named}


def _read() -> dict[str, _Logger]:
    states = {
        name: _Logger(
            logger.level,
            logger.propagate,
            logger.disabled,
            tuple(logger.handlers),
            tuple(logger.filters),
        )
        for name, logger in _loggers().items()
    }
    return {name: state for name, state in states.items() if state != _UNTOUCHED}


def _write(value: dict[str, _Logger]) -> None:
    kept = {handler for state in value.values() for handler in state.handlers}
    dropped: set[logging.Handler] = set()
    for name, logger in _loggers().items():
        state = value.get(name, _UNTOUCHED)
        dropped.update(handler for handler in logger.handlers if handler not in kept)
        logger.setLevel(state.level)
        logger.propagate, logger.disabled = state.propagate, state.disabled
        logger.handlers[:] = state.handlers
        logger.filters[:] = state.filters
    for handler in dropped:
        with contextlib.suppress(OSError, ValueError):  # Its stream may be closed already.
            handler.close()


def _disabled() -> int:
    return logging.root.manager.disable
