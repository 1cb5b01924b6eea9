"""Who may join a job. Pure."""

from collections.abc import Collection

from trainmover.ids import MachineId
from trainmover.protocol.messages import PROTOCOL, Hello, JobSpec
from trainmover.version import VERSION


def refusal(hello: Hello, spec: JobSpec, present: Collection[MachineId], *, over: bool) -> str:
    """Why a machine that knows the token is not welcome, three lines; "" if it is."""
    if over:
        return f"Run {spec.run_id} has ended.\n{hello.machine} was not taken in.\nStart a new run."
    if (hello.version, hello.protocol) != (VERSION, PROTOCOL):
        return (
            f"{hello.machine} runs trainmover {hello.version} (protocol {hello.protocol}), "
            f"the job {VERSION} (protocol {PROTOCOL}).\n"
            f"{hello.machine} was not taken in; the job did not notice.\n"
            f"Install trainmover {VERSION} there."
        )
    if hello.nproc != spec.nproc:
        return (
            f"{hello.machine} offers {hello.nproc} workers, the job has {spec.nproc} a machine.\n"
            f"{hello.machine} was not taken in; the job did not notice.\n"
            f"Start the agent with --nproc {spec.nproc}."
        )
    if hello.machine in present:
        return (
            f"{hello.machine} is already in the job.\n"
            "The newcomer was not taken in; the job did not notice.\n"
            "Give every machine a name of its own (--machine)."
        )
    return ""
