# SPDX-License-Identifier: Apache-2.0
"""A worker process from its first breath to its last: control thread, state server, runs."""

import ctypes
import faulthandler
import gc
import os
import signal
import sys
from pathlib import Path

import msgspec
import torch
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from trainmover.comm import groups, hook_torch
from trainmover.comm.choice import load_all
from trainmover.descriptors import raise_limit
from trainmover.escaping import one_line
from trainmover.lifeline import STACK_SIGNAL, end_quickly
from trainmover.listeners.dial import dial_in_tls
from trainmover.protocol.messages import JobSpec, WorkerUp
from trainmover.sandbox.process import modules
from trainmover.state.kinds.modules.modes import watch_wrappers
from trainmover.state.kinds.modules.registered import registered
from trainmover.state.kinds.parallel.hooks import watch_hooks
from trainmover.state.transfer import StateServer
from trainmover.tls.files import TlsFiles
from trainmover.token_file import read_token
from trainmover.torch_internals import loaders
from trainmover.torch_internals.compiling import leave_us_out
from trainmover.torch_internals.distributed.ddp import watch_buckets
from trainmover.torch_internals.watching.aliases import aliases
from trainmover.version import VERSION
from trainmover.worker import api
from trainmover.worker.auto.loaders import wrap_loaders
from trainmover.worker.auto.loop import watch_backward
from trainmover.worker.control import Control
from trainmover.worker.join.regroup import know_groups
from trainmover.worker.keep.snapshots import Snapshots
from trainmover.worker.link import ControlLink
from trainmover.worker.meeting_place import MeetingPlace
from trainmover.worker.runs import Runs
from trainmover.worker.station import Station
from trainmover.worker.stores import Stores, to_torch
from trainmover.worker.termination import outlive_in_loaders
from trainmover.worker.watch.footing import Pulse
from trainmover.worker.watch.watch import Watch

_PR_SET_PDEATHSIG = 1


def before_forks() -> None:
    """Once in a fork server: what each worker would do again."""
    load_all()
    leave_us_out()
    "".encode("idna")  # Imports, as whoever resolves a name does.
    modules.ours_are_loaded()


def main() -> None:
    """Run one worker process; ends with the exit status of the script's last run."""
    _die_with_agent()
    raise_limit()
    hook_torch(groups)
    watch_wrappers()
    watch_buckets()
    watch_hooks()
    registered.watch()
    aliases.watch()
    know_groups()
    station = _station()
    outlive_in_loaders()
    loaders.watch_processes()
    groups.on_device_lost = _end_with_device
    groups.choose(station.spec.comm, station.token, station.spec.gpu_comm)
    control = Control(station)
    runs = Runs(station, control)
    _hook_optimizers(runs, control)
    wrap_loaders()
    modules.ours_are_loaded()
    api.on_attach(runs.attached)
    sys.path[0] = ""
    station.link.listen(control.obey)
    station.link.say(
        WorkerUp(
            pid=os.getpid(),
            address=station.server.address,
            torch=str(torch.__version__),
            version=VERSION,
        )
    )
    _watch(station, control)
    gc.freeze()  # What is here lives as long as the process: collections between runs pass it by.
    runs.go_on()
    station.server.close()
    end_quickly()


def _end_with_device(why: str) -> None:
    """Nothing on it can be believed any more: this process ends as if it were lost, the job goes
    on."""
    print(
        f"trainmover: the device of this process is lost: {one_line(why)}. Its rank goes to "
        "another machine; look at this one's GPU before it is used again.",
        file=sys.stderr,
        flush=True,
    )
    os.kill(os.getpid(), signal.SIGKILL)


def _station() -> Station:
    spec = msgspec.msgpack.decode(Path(os.environ["TRAINMOVER_SPEC"]).read_bytes(), type=JobSpec)
    token = read_token(Path(os.environ["TRAINMOVER_TOKEN_FILE"]))
    link, server = ControlLink(int(os.environ["TRAINMOVER_CONTROL_FD"])), _state_server(spec, token)
    return Station(
        spec=spec,
        token=token,
        local_rank=int(os.environ["LOCAL_RANK"]),
        link=link,
        server=server,
        stores=Stores(spec.store, lambda address: MeetingPlace(address, token)),
        torchs=Stores("{MASTER_ADDR}:{MASTER_PORT}".format_map(os.environ), to_torch, stock=1),
        pulse=Pulse(os.environ.get("TRAINMOVER_PULSE", "") if spec.watch else ""),
        snapshots=Snapshots(token, server, link.say, checkpoint_every=_checkpoint_every(spec)),
    )


def _checkpoint_every(spec: JobSpec) -> int:
    return spec.checkpoint_every if spec.checkpoint else 0


def _state_server(spec: JobSpec, token: bytes) -> StateServer:
    """A machine's workers share what it may send."""
    address = os.environ["TRAINMOVER_ADDRESS"]
    files = TlsFiles.of_environment(os.environ)
    tls = None if files is None else files.read()
    dial_in_tls(tls)
    return StateServer(
        token, address, bytes_s=spec.state_bandwidth / spec.nproc, tls=tls, pairings=groups.pairing
    )


def _die_with_agent() -> None:
    """SIGKILL when the agent dies, so that a fenced machine has no workers."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    agent = os.environ.get("TRAINMOVER_AGENT_PID")
    if agent is not None and os.getppid() != int(agent):
        os._exit(1)


def _watch(station: Station, control: Control) -> None:
    """Look whether ranks move, and be ready to say where the threads stand.

    The stack is written in the signal's handler itself: also by a thread that holds the GIL.
    """
    spec = station.spec
    if stacks := os.environ.get("TRAINMOVER_STACKS"):
        file = os.open(stacks, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        faulthandler.register(STACK_SIGNAL, file=file, all_threads=True)
    if spec.watch:
        watch = Watch(
            lambda: control.member,
            station.link.say,
            station.pulse,
            false_alarms=spec.false_alarms,
        )
        watch.start()


def _hook_optimizers(runs: Runs, control: Control) -> None:
    """The gate is the pre-hook of the first outermost `optimizer.step()` of a step."""

    def before(optimizer: torch.optim.Optimizer, *_: object) -> None:
        if runs.auto is not None:
            runs.auto.before_update(optimizer)
        if control.member is not None:
            control.member.enter_update(optimizer)

    def after(*_: object) -> None:
        if control.member is not None:
            control.member.leave_update()

    register_optimizer_step_pre_hook(before)
    register_optimizer_step_post_hook(after)
    watch_backward(lambda one: None if runs.auto is None else runs.auto.before_backward(one))
