# SPDX-License-Identifier: Apache-2.0
"""Who may join a job, and who may come back to it. Pure."""

from collections.abc import Collection

from trainmover.escaping import is_one_line
from trainmover.ids import Epoch, MachineId
from trainmover.protocol.messages import PROTOCOL, Hello, JobSpec, Order, Refused, Return
from trainmover.server.machines.accounts import Account
from trainmover.version import VERSION

NAME_MAX = 200
"""Characters that the name of a machine may have, as requests over the API name it."""


def refusal(hello: Hello, spec: JobSpec, present: Collection[MachineId], *, over: bool) -> str:
    """Why a machine that knows the token is not welcome, three lines; "" if it is."""
    if not _is_named(hello):
        return (
            f"{hello.machine[:NAME_MAX]!r} in {hello.rack[:NAME_MAX]!r} cannot be named so.\n"
            "The newcomer was not taken in; the job did not notice.\n"
            f"Give --machine and --rack up to {NAME_MAX} characters that can be seen."
        )
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


def _is_named(hello: Hello) -> bool:
    """Whether people and requests can name it: what cannot be seen would steer their terminals."""
    said = (hello.machine, hello.rack, hello.host, hello.version, hello.vault)
    return bool(hello.machine) and all(len(one) <= NAME_MAX and is_one_line(one) for one in said)


def quarantined_text(machine: MachineId, wait_s: float) -> str:
    """Why a machine that was lost again and again has to wait."""
    return (
        f"{machine} was lost several times within an hour.\n"
        f"It is not taken in for the next {wait_s:.0f} s; the job does not count on it.\n"
        "Look at its hardware and its network; its agent asks again by itself."
    )


def returned_text(machine: MachineId) -> str:
    """Why a machine that the engine was given back is no machine of the job any more."""
    return (
        f"{machine} was given back to its engine, which was asked for another.\n"
        f"{machine} was not taken in; the job goes on without it.\n"
        "Nothing is to be done: a new machine has another name."
    )


def taken_back(
    back: Return, account: Account | None, epoch: Epoch, term: int
) -> list[Order] | Refused:
    """What an agent that lost its link has not heard; or why it cannot go on with its workers.

    account  of the machine of that name, if there is one in the job
    term    of this controller
    """
    machine = back.machine
    if (back.version, back.protocol) != (VERSION, PROTOCOL):
        return Refused(
            reason=f"{machine} runs trainmover {back.version} (protocol {back.protocol}), "
            f"the controller that has taken over {VERSION} (protocol {PROTOCOL}).\n"
            f"The workers of {machine} are ended.\n"
            "Run the same version everywhere."
        )
    if account is None or account.incarnation != back.incarnation:
        why = f"{machine} was given up for lost (epoch {epoch})"
    else:
        rest = account.rest(back.heard, back.term, now=term)
        if rest is not None and back.dropped <= account.facts:
            return rest
        why = f"the journal has lost what was agreed with {machine} last"
    return Refused(reason=f"{why}.\nIts workers are ended.\nIt begins anew.", retry_s=0.0)
