# SPDX-License-Identifier: Apache-2.0
"""`python -m trainmover.health`: one line of JSON with what was measured, and what was wrong.

    {"figures": {"memory_gb_s": 4.1, ...}, "failed": "", "clock_us": 1764000000000000}

It is started by the agent of the machine, which ends it when it takes too long.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from trainmover.health import checks
from trainmover.lifeline import die_with
from trainmover.listeners.dial import dial_in_tls
from trainmover.tls.files import all_or_none
from trainmover.token_file import read_token


def main() -> int:
    """Exit status 0 also for a machine that has failed: that was found."""
    options = _parser().parse_args()
    if options.parent:
        die_with(options.parent)
    tls = all_or_none(options.tls_cert, options.tls_key, options.tls_ca)
    dial_in_tls(None if tls is None else tls.read())
    figures: dict[str, float] = {}
    failed = ""
    try:
        for check in _checks(options):
            figures |= check()
    except checks.Unfit as unfit:
        failed = str(unfit)
    except MemoryError:
        failed = "there was not enough memory for the checks"
    told = {"figures": figures, "failed": failed, "clock_us": time.time_ns() // 1000}
    print(json.dumps(told), flush=True)
    return 0


def _checks(options: argparse.Namespace) -> Iterator[Callable[[], dict[str, float]]]:
    yield checks.memory
    yield partial(checks.disk, options.folder)
    yield checks.processor
    yield checks.loopback
    yield checks.gpus
    if options.peer:
        yield partial(_ways, dict(options.peer), read_token(options.token_file))


def _ways(peers: dict[str, str], token: bytes) -> dict[str, float]:
    """The slowest: a machine whose own link is slow is slow to all."""
    rates = [checks.way(machine, address, token) for machine, address in peers.items()]
    return {"network_mb_s": min(rates)}


def _peer(given: str) -> tuple[str, str]:
    machine, _, address = given.partition("=")
    return machine, address


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m trainmover.health", description=__doc__)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--peer", type=_peer, action="append", metavar="MACHINE=ADDRESS")
    parser.add_argument("--token-file", type=Path)
    parser.add_argument("--parent", type=int)
    for flag in ("--tls-cert", "--tls-key", "--tls-ca"):
        parser.add_argument(flag, type=Path)
    return parser


if __name__ == "__main__":
    sys.exit(main())
