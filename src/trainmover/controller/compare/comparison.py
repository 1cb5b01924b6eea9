# SPDX-License-Identifier: Apache-2.0
"""Rounds: what all ranks hold after one step, compared with all rounds before. Pure.

In a round every rank tells a hash of each tensor it tracks. It counts once all ranks have told, in
one epoch; one that an incident interrupts is dropped. Then holders part (`holders`), which may be
silent corruption (`parting`).
"""

import struct
from collections.abc import Iterable

from trainmover.controller.compare.holders import families, refined, votes, watched
from trainmover.controller.compare.known import SHARED, Comparison, Doubt, Layout, Told
from trainmover.controller.compare.parting import divergences, ought
from trainmover.controller.values import replace
from trainmover.ids import Epoch, Rank, Step
from trainmover.protocol.messages import Fingerprinted

_HASH_BYTES = 8
SECTIONS = 3


def with_fact(
    comparison: Comparison, fact: Fingerprinted, *, epoch: Epoch, world_size: int
) -> Comparison:
    """Take one rank's word; with the last rank's the round is complete and compared.

    epoch: in force; what is said in another one is late.
    """
    if fact.paths is not None:
        layout = Layout(tuple(fact.paths), tuple(fact.sections))
        comparison = replace(comparison, layouts={**comparison.layouts, fact.layout: layout})
    if fact.epoch != epoch:
        return comparison
    round_ = (fact.epoch, fact.step)
    said = {s.rank: s for s in comparison.said.values() if (s.epoch, s.step) == round_}
    said[fact.rank] = fact
    known = all(_fits(s, comparison.layouts, said) for s in said.values())
    if len(said) < world_size or not known:
        return replace(comparison, said=said)
    return _compared(replace(comparison, said={}), said)


def _fits(fact: Fingerprinted, layouts: dict[str, Layout], said: dict[Rank, Fingerprinted]) -> bool:
    """Whether what it belongs to is known, and there is a hash for each path of that."""
    layout = layouts.get(fact.layout)
    source = fact if fact.like is None else said.get(fact.like)
    if layout is None or source is None or source.like is not None:
        return False
    if len(layout.sections) != SECTIONS or min(layout.sections) < 0:
        return False
    first = layout.sections[SHARED]
    hashes = [len(source.shared) // _HASH_BYTES, len(fact.rest) // _HASH_BYTES]
    whole = not (len(source.shared) % _HASH_BYTES or len(fact.rest) % _HASH_BYTES)
    return (
        whole
        and hashes == [first, sum(layout.sections) - first]
        and (sum(layout.sections) == len(layout.paths))
    )


def healed(comparison: Comparison, rank: Rank, step: Step) -> Comparison:
    """The rank has taken its state from another one, after `step`."""
    return _now_diverged(comparison, comparison.diverged - {rank}, since=step, until=step)


def took_over(comparison: Comparison, rank: Rank, step: Step) -> Comparison:
    """Another process has the rank, from after `step` on."""
    return replace(comparison, joined={**comparison.joined, rank: step})


def apart(comparison: Comparison, ranks: Iterable[Rank]) -> Comparison:
    """Each of these holds what no other does, and will: see `Comparison.apart`."""
    new = {rank: comparison.step for rank in ranks if rank not in comparison.apart}
    return replace(comparison, apart={**comparison.apart, **new})


def gone_back(comparison: Comparison, step: Step) -> Comparison:
    """All ranks take what was kept of them after `step`: who had diverged then is so again."""
    known = [doubt for doubt in comparison.doubts if doubt.since < step]
    again = {doubt.rank for doubt in known if doubt.until is not None and step <= doubt.until}
    doubts = tuple(replace(one, until=None) if one.rank in again else one for one in known)
    return replace(comparison, diverged=comparison.diverged | again, doubts=doubts)


def _now_diverged(
    comparison: Comparison, diverged: frozenset[Rank], *, since: Step, until: Step
) -> Comparison:
    """since: when those that are new were still right; until: when the others were at last."""
    over = comparison.diverged - diverged
    known = (
        replace(one, until=until) if one.until is None and one.rank in over else one
        for one in comparison.doubts
    )
    new = (Doubt(rank, since) for rank in sorted(diverged - comparison.diverged))
    return replace(comparison, diverged=diverged, doubts=(*known, *new))


def _compared(comparison: Comparison, said: dict[Rank, Fingerprinted]) -> Comparison:
    before, step = comparison.held, next(iter(said.values())).step
    since = min(comparison.step, step)
    sections = range(len(before))
    told = [_told(at, comparison.layouts, said) for at in sections]
    now = [*map(watched, before, told)]
    trusted = sorted(said.keys() - comparison.diverged)
    votes_ = [votes(before[at], {rank: now[at][rank] for rank in trusted}) for at in sections]
    new = divergences(votes_, comparison.families, comparison.joined, step=step, since=since)
    diverged = comparison.diverged | {rank for one in new if one.shared for rank in one.diverged}
    good = [
        ought(before[at], now[at], votes_[at], comparison.families, diverged) for at in sections
    ]
    held = tuple(map(refined, before, told, good))
    still = frozenset(rank for rank in diverged if now[SHARED][rank] != good[SHARED][rank])
    comparison = _now_diverged(comparison, still, since=since, until=step)
    return replace(
        comparison,
        step=step,
        read=max(fact.read for fact in said.values()),
        took_us=max(fact.took_us for fact in said.values()),
        held=held,
        families=families(held[SHARED], good[SHARED]),
        divergences=(*comparison.divergences, *new),
    )


def _told(
    section: int, layouts: dict[str, Layout], said: dict[Rank, Fingerprinted]
) -> dict[Rank, Told]:
    known: dict[tuple[tuple[str, ...], bytes], Told] = {}
    told: dict[Rank, Told] = {}
    for rank, fact in sorted(said.items()):
        layout = layouts[fact.layout]
        paths = layout.section(section)
        shared = fact.shared if fact.like is None else said[fact.like].shared
        start = _HASH_BYTES * sum(layout.sections[SHARED + 1 : section])
        hashes = (
            shared if section == SHARED else fact.rest[start : start + _HASH_BYTES * len(paths)]
        )
        key = (paths, hashes)
        if key not in known:
            known[key] = dict(zip(paths, struct.unpack(f"<{len(paths)}Q", hashes), strict=True))
        told[rank] = known[key]
    return told
