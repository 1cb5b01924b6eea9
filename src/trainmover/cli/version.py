# SPDX-License-Identifier: Apache-2.0
"""`trainmover version`: which trainmover, which torch, which communicator."""

import argparse
import importlib.metadata
import platform

from trainmover import communicators
from trainmover.cli.output import say, say_json
from trainmover.protocol.messages import PROTOCOL
from trainmover.version import VERSION


def main(options: argparse.Namespace) -> int:
    """Asks the installed packages, so that torch need not be imported."""
    versions = {
        "trainmover": VERSION,
        "protocol": PROTOCOL,
        "torch": _installed("torch"),
        "python": platform.python_version(),
        "comm": communicators.default(),
    }
    if options.json:
        say_json(versions)
    else:
        say("  ".join(f"{name} {version}" for name, version in versions.items()))
    return 0


def _installed(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"
