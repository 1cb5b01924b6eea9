"""What may happen to a run: each strikes, and ends what would end by itself."""

import random
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from chaos_run import Running, send

from trainmover.cli.client import Client
from trainmover.errors import TrainmoverError

Fault = Callable[[Running, random.Random], str]
STALLS = "stalls"
CGROUPS = Path("/sys/fs/cgroup/memory")
MEMORY_BYTES = 256 * 1024
OUTAGE_S_MAX = 0.25
"""TCP tries again after 0.2 s and 0.6 s: if all are silent for longer, all count as lost."""


def active(running: Running, dice: random.Random) -> str:
    """A machine that holds ranks, or "" if nobody tells."""
    machines = running.machines("active")
    return dice.choice(machines) if machines else ""


def anybody(running: Running, dice: random.Random) -> str:
    machines = running.machines("active", "warm", "holding")
    return dice.choice(machines) if machines else ""


def kill_worker(running: Running, dice: random.Random) -> str:
    machine = anybody(running, dice)
    send(running.worker(machine), signal.SIGKILL)
    return f"kill the worker of {machine}"


def kill_agent(running: Running, dice: random.Random) -> str:
    machine = anybody(running, dice)
    send(running.agent(machine), signal.SIGKILL)
    return f"kill the agent of {machine}"


def kill_machine(running: Running, dice: random.Random) -> str:
    """As when the power fails: all of it at once."""
    machine = active(running, dice)
    agent, worker = running.agent(machine), running.worker(machine)
    send(agent, signal.SIGKILL)
    send(worker, signal.SIGKILL)
    return f"kill {machine}"


def stop_worker(running: Running, dice: random.Random) -> str:
    machine, pause_s = active(running, dice), dice.choice([0.1, 0.5, 3.0])
    worker = running.worker(machine)
    send(worker, signal.SIGSTOP)
    time.sleep(pause_s)
    send(worker, signal.SIGCONT)
    return f"stop the worker of {machine} for {pause_s} s"


def stop_agent(running: Running, dice: random.Random) -> str:
    machine, pause_s = anybody(running, dice), dice.choice([0.2, 2.5])
    agent = running.agent(machine)
    send(agent, signal.SIGSTOP)
    time.sleep(pause_s)
    send(agent, signal.SIGCONT)
    return f"stop the agent of {machine} for {pause_s} s"


def freeze_machine(running: Running, dice: random.Random) -> str:
    machine, pause_s = active(running, dice), dice.choice([0.3, 3.0])
    pids = [running.agent(machine), running.worker(machine)]
    for pid in pids:
        send(pid, signal.SIGSTOP)
    time.sleep(pause_s)
    for pid in pids:
        send(pid, signal.SIGCONT)
    return f"freeze {machine} for {pause_s} s"


def kill_controller(running: Running, dice: random.Random) -> str:
    send(running.controller(), signal.SIGKILL)
    return "kill the controller"


def kill_store(running: Running, dice: random.Random) -> str:
    send(running.store(), signal.SIGKILL)
    return "kill the store"


def controller_and_machine(running: Running, dice: random.Random) -> str:
    machine = active(running, dice)
    pids = [running.controller(), running.agent(machine), running.worker(machine)]
    for pid in dice.sample(pids, len(pids)):
        send(pid, signal.SIGKILL)
    return f"kill the controller and {machine}"


def store_and_worker(running: Running, dice: random.Random) -> str:
    machine = active(running, dice)
    pids = [running.store(), running.worker(machine)]
    for pid in dice.sample(pids, len(pids)):
        send(pid, signal.SIGKILL)
    return f"kill the store and the worker of {machine}"


def move(running: Running, dice: random.Random) -> str:
    machine, run = active(running, dice), running.run()
    try:
        told = (
            "nobody to ask"
            if run is None
            else Client(run).ask("move", {"machine": machine})["text"]
        )
    except TrainmoverError as error:
        told = error.happened
    return f"move {machine}: {told.splitlines()[0]}"


def stall(running: Running, dice: random.Random) -> str:
    """In the script, for ever: whoever takes the rank does not stall again."""
    machine, how = active(running, dice), dice.choice(["loop", "lock", "gil"])
    order = running.folder.parent / STALLS / (machine or "nobody")
    order.write_text(how)
    running.until(lambda: not order.exists() or not running.machines(), "a stall")
    return f"let the script stall on {machine}: {how}"


def out_of_memory(running: Running, dice: random.Random) -> str:
    """The kernel kills the worker: it may not have one page more."""
    machine = active(running, dice)
    worker = running.worker(machine)
    group = CGROUPS / f"trainmover-chaos-{running.process.pid}"
    group.mkdir(exist_ok=True)
    try:
        (group / "memory.limit_in_bytes").write_text(str(MEMORY_BYTES))
        if worker is not None:
            (group / "cgroup.procs").write_text(str(worker))
            running.until(lambda: running.worker(machine) != worker, "the end of a worker")
    except OSError:
        pass  # It was gone already.
    finally:
        for pid in (group / "cgroup.procs").read_text().split():
            (CGROUPS / "cgroup.procs").write_text(pid)
        _remove(group)
    return f"let the worker of {machine} run out of memory"


def cut_network(running: Running, dice: random.Random) -> str:
    """Nobody hears anybody for a moment: in a network of our own only."""
    pause_s = dice.uniform(0.05, OUTAGE_S_MAX)
    subprocess.run(["ip", "link", "set", "lo", "down"], check=True)
    time.sleep(pause_s)
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    return f"cut the network for {pause_s:.2f} s"


def slow_network(running: Running, dice: random.Random) -> str:
    delay_ms, loss = dice.randrange(1, 20), dice.choice([0, 1, 5])
    netem = ["root", "netem", "delay", f"{delay_ms}ms", "loss", f"{loss}%"]
    subprocess.run(["tc", "qdisc", "add", "dev", "lo", *netem], check=True)
    time.sleep(dice.uniform(0.5, 2.0))
    subprocess.run(["tc", "qdisc", "del", "dev", "lo", "root"], check=True)
    return f"delay the network by {delay_ms} ms and lose {loss} % of it"


def _remove(group: Path) -> None:
    for _ in range(100):
        try:
            return group.rmdir()
        except OSError:
            time.sleep(0.01)  # The kernel is not done with it yet.


EVERYWHERE: list[Fault] = [
    kill_worker,
    kill_worker,
    kill_agent,
    kill_machine,
    stop_worker,
    stop_agent,
    freeze_machine,
    kill_controller,
    kill_store,
    controller_and_machine,
    store_and_worker,
    move,
    move,
]


def possible(*, own_network: bool, stalls: bool) -> tuple[list[Fault], list[str]]:
    """What can be done to a run here, and why the rest cannot. stalls: the script knows how to."""
    faults, reasons = EVERYWHERE + [stall] * stalls, list[str]()
    if _can_limit_memory():
        faults.append(out_of_memory)
    else:
        reasons.append("no memory limits: there is no cgroup to write to")
    if own_network:
        faults.append(cut_network)
    else:
        reasons.append("no cut network: that needs root and a network namespace")
    if own_network and _can_shape():
        faults.append(slow_network)
    else:
        reasons.append("no slow network: tc or its netem is not there")
    return faults, reasons


def _can_limit_memory() -> bool:
    group = CGROUPS / "trainmover-chaos-probe"
    try:
        group.mkdir()
        group.rmdir()
    except OSError:
        return False
    return True


def _can_shape() -> bool:
    netem = ["tc", "qdisc", "add", "dev", "lo", "root", "netem", "delay", "1ms"]
    try:
        if subprocess.run(netem, capture_output=True).returncode:
            return False
    except OSError:
        return False
    subprocess.run(["tc", "qdisc", "del", "dev", "lo", "root"], check=True)
    return True
