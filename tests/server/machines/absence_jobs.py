"""Jobs of m1, m2 and m3 with ranks, and of standbys, m4 and so on."""

from trainmover.controller.facts import Facts
from trainmover.controller.state import Job, Machine, Machines, MachineState, Phase
from trainmover.ids import MachineId, Rank, Slot, Step
from trainmover.protocol.messages import JobSpec, Recorded

_NAMES = [MachineId(f"m{number}") for number in range(1, 6)]
_RANKS = _NAMES[:3]
_RECORDED = Recorded(rank=Rank(0), step=Step(3), trace="t", digest="d", bytes=1)


def job(standbys: int, *, wait_s: int = 0) -> Job:
    machines = {
        name: Machine(
            id=name,
            standby=name not in _RANKS,
            vault=f"v{name}",
            host=name,
            state=MachineState.ACTIVE if name in _RANKS else MachineState.WARM,
        )
        for name in _NAMES[: 3 + standbys]
    }
    return Job(
        spec=JobSpec(run_id="r", argv=["x"], machines=3, standbys=standbys, wait_s=wait_s),
        phase=Phase.RUNNING,
        machines=Machines(machines),
        seats=tuple(_RANKS),
        recorded=Facts({Rank(rank): _RECORDED for rank in range(3)}),
        keepers={Slot(slot): (_RANKS[(slot + 1) % 3],) for slot in range(3)},
    )


JOB, JOB_OF_TWO_STANDBYS = job(1), job(2)
