"""In which words stories of a job are written, and what follows from an event in them."""

import struct
from collections.abc import Callable, Iterator
from itertools import groupby
from typing import Any

import jobs
import msgspec

from tests.transcript import SHORT, changes, in_a_line, shown
from trainmover.controller import Job, effects, events
from trainmover.controller.effects import Answer, Effect, End, Fence, Send
from trainmover.controller.policies.stragglers.known import Effect as Slow
from trainmover.controller.policies.stragglers.known import SlowMove, Stragglers
from trainmover.controller.state import Cordon, Option
from trainmover.controller.values import replace
from trainmover.protocol import messages

# --- words ----------------------------------------------------------------------------------------


def wants(job: Job, **changes: Any) -> Job:
    """One of which something else was asked for."""
    return replace(job, spec=msgspec.structs.replace(job.spec, **changes))


def agent(machine: str, fact: messages.AgentFact, at_us: int = 0) -> events.AgentSaid:
    return events.AgentSaid(at_us=at_us, machine=machine, fact=fact)


def ranks(
    make: Callable[..., events.WorkerSaid], machines: str, epoch: int, **more: Any
) -> list[events.WorkerSaid]:
    """What rank 0, 1, ... say on these machines; a dash says nothing."""
    names = enumerate(machines.split())
    return [make(name, rank, epoch, **more) for rank, name in names if name != "-"]


def stands(rank: int, where: str = "call", calls: int = 5, epoch: int = 1) -> messages.Stands:
    return messages.Stands(
        rank=rank, epoch=epoch, step=8, where=where, counts={"gate": calls},
        call="the gate" if where == "call" else "", place="train.py line 33", still_ms=700,
        deadline_ms=600,
    )  # fmt: skip


def snapped(machine: str, rank: int, epoch: int, step: int, **more: Any) -> events.WorkerSaid:
    """Its buddy has it, too."""
    its = {"vault": f"vault-m{(rank + 1) % 3 + 1}", "bytes": 10, "cost_us": 300, "step_us": 1000}
    fact = messages.Snapped(rank=rank, epoch=epoch, step=step, **(its | more))
    return jobs.said(machine, fact)


def wrote(machine: str, rank: int, epoch: int, step: int, **more: Any) -> events.WorkerSaid:
    its = {"state": [messages.Written(f"rank-{rank}.state", 9, "d")]}
    fact = messages.Wrote(rank=rank, epoch=epoch, step=step, **(its | more))
    return jobs.said(machine, fact)


def fingerprint(rank: int, step: int, epoch: int = 1, **state: int) -> messages.Fingerprinted:
    """Of shared state: name -> hash."""
    return messages.Fingerprinted(
        rank=rank, epoch=epoch, step=step, layout="/".join(state), paths=[*state],
        sections=[len(state), 0, 0], shared=struct.pack(f"<{len(state)}Q", *state.values()),
        read=100 + rank, took_us=10 * rank,
    )  # fmt: skip


def slow_before(slot: int, *came_to: str) -> Stragglers:
    """One move after the other away from it, with the numbers 7, 8, ..."""
    moves = [
        SlowMove(slot, f"m{9 - at}", "m2", 7 + at, 130.0, 100.0, effect=Slow(effect))
        for at, effect in enumerate(came_to or ["in vain"])
    ]
    return Stragglers(moves=tuple(moves))


def suspecting(job: Job, machine: str) -> Any:
    """Its machines, of which this one is not trusted."""
    its = replace(job.machines[machine], suspect="its memory is in doubt")
    return job.machines.having(machine, its)


CHECKPOINT = messages.Checkpoint(
    folder="/kept", run_id="before", step=10, epoch=3, argv=["train.py"], module=False, script="",
    machines=2, nproc=1, torch="2", trainmover="1", python="",
    states={rank: [messages.Written(f"step-10/rank-{rank}.state", 9, "d")] for rank in (0, 1)},
    records={0: messages.Written("first-steps/r", 3, "r")}, compiled={},
    recorded=[
        messages.Recorded(rank=rank, step=3, trace="t", digest="d", bytes=1) for rank in (0, 1)
    ],
)  # fmt: skip


OURS = (
    wants, agent, ranks, stands, snapped, wrote, fingerprint, replace, slow_before, suspecting,
)  # fmt: skip
WORDS: dict[str, Any] = {
    **vars(messages), **vars(events), **vars(effects), **vars(jobs),
    **{one.__name__: one for one in OURS}, "CHECKPOINT": CHECKPOINT, "Cordon": Cordon,
}  # fmt: skip

# --- what follows ---------------------------------------------------------------------------------


def option_text(its: Option) -> str:
    """Return an option in short; "" if its flag was not given."""
    if its.why in CLOSED:
        return ""
    return f"{its.name}: {its.why}" if its.ms is None else f"{its.name}: {its.ms:g} ms, {its.why}"


CLOSED = {
    "it was not allowed (--wait-for-machine)",
    "it was not asked for (--no-standby checkpoint)",
}
SHORT |= {
    messages.Source: lambda its: f"{its.rank} at {its.address}",
    messages.Stored: lambda its: " ".join(
        [str(its.rank), "in", *its.vaults, *filter(None, (its.file, its.compiled))]
    ),
    Option: option_text,
}
EACH = {"machines", "incidents"}
SAID = {"code", "ended_because"}
"""The end of the job says these."""


def happens(job: Job, line: str) -> tuple[Job, Iterator[str]]:
    """A line is an event, or several."""
    after, what = jobs.after(job, *eval(f"({line},)", WORDS))
    return after, _follows(job, after, what)


def _follows(before: Job, after: Job, what: tuple[Effect, ...]) -> Iterator[str]:
    """The same order to several that follow one another is a line."""
    for said, group in groupby(what, key=_without_whom):
        whom = [effect.machine for effect in group if isinstance(effect, Send | Fence)]
        yield f"{', '.join(whom)}: {said}" if whom else said
    yield from changes(before, after, each=EACH, but=SAID)


def _without_whom(effect: Effect) -> str:
    match effect:
        case Send(order=order):
            return shown(order)
        case Fence():
            return "fenced"
        case Answer(request=request, ok=ok, text=text, incident=incident):
            about = "" if incident is None else f", incident {incident}"
            return f"{request} is {'done' if ok else 'refused'}{about}: {in_a_line(text)}"
        case End(code=code, text=text):
            return f"the job ends with {code}: {in_a_line(text)}"
        case _:
            return shown(effect)
