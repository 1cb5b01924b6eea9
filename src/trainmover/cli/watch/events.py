# SPDX-License-Identifier: Apache-2.0
"""`trainmover events`: what has happened, of a live run or from a journal."""

import argparse
from collections.abc import Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from trainmover.cli.client import Client
from trainmover.cli.options import which_run
from trainmover.cli.output import say, say_json
from trainmover.escaping import indented
from trainmover.journal.replay import replayed
from trainmover.server.view.sentences import sentence


def main(options: argparse.Namespace) -> int:
    """Print one line an event."""
    if options.journal is not None:
        _print(_tail(list(_from_journal(options.journal)), options), options)
        return 0
    client = Client(which_run(options))
    past = client.events()
    _print(_tail(past, options), options)
    if options.follow:
        after = past[-1]["seq"] if past else 0
        _print(client.follow(after), options)
    return 0


def _from_journal(path: Path) -> Iterator[dict[str, Any]]:
    for entry, before, after in replayed(path):
        text = entry.text if entry.event is None else sentence(before, entry.event, after).text
        yield {
            "seq": entry.seq,
            "at_us": after.shown_us(entry.at_us),
            "kind": entry.kind,
            "text": text,
            "event": msgspec.to_builtins(entry.event, str_keys=True),
        }


def _tail(happened: list[dict[str, Any]], options: argparse.Namespace) -> list[dict[str, Any]]:
    shown = [one for one in happened if _wanted(one, options)]
    return shown if options.last is None else shown[len(shown) - max(0, options.last) :]


def _wanted(one: dict[str, Any], options: argparse.Namespace) -> bool:
    return bool(one["text"] or options.all or options.json)


def _print(happened: Iterable[dict[str, Any]], options: argparse.Namespace) -> None:
    for one in happened:
        if options.json:
            say_json(one, flush=True)
        elif _wanted(one, options):
            at = datetime.fromtimestamp(one["at_us"] / 1e6).strftime("%H:%M:%S.%f")[:-3]
            first = f"{at}  {one['seq']:>5}  "
            say(first + indented(one["text"] or one["kind"], len(first)), flush=True)
