"""A job of m1, m2 and m3 with ranks, and m4 that stands by."""

from trainmover.controller.state import Job, Machine, Machines, MachineState, Phase
from trainmover.ids import MachineId
from trainmover.protocol.messages import JobSpec

_NAMES = [MachineId(f"m{number}") for number in range(1, 5)]
JOB = Job(
    spec=JobSpec(run_id="r", argv=["x"], machines=3, standbys=1),
    phase=Phase.RUNNING,
    machines=Machines(
        {
            name: Machine(
                id=name,
                standby=name == "m4",
                vault=f"v{name}",
                host=name,
                state=MachineState.WARM if name == "m4" else MachineState.ACTIVE,
            )
            for name in _NAMES
        }
    ),
    seats=tuple(_NAMES[:3]),
)
