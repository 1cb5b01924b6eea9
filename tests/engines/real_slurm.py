"""A real Slurm on this host, from nothing: munge, slurmctld and a slurmd for each node."""

import getpass
import os
import secrets
import shutil
import signal
import socket
import subprocess
import time
from contextlib import suppress
from pathlib import Path

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "squeue", "sinfo", "scancel", "scontrol")
WITHIN_S = 30.0
_CONF = """\
ClusterName=tm
SlurmctldHost={host}(127.0.0.1)
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
CryptoType=crypto/munge
AuthInfo=socket={folder}/munge.sock
StateSaveLocation={folder}/ctld
SlurmdSpoolDir={folder}/spool.%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.%n.log
SlurmctldPort={port}
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
SlurmdTimeout=10
KillWait=10
SlurmdParameters=config_overrides
{nodes}
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


def lacking() -> list[str]:
    """Return the programs that this host has not; and whether it is root's."""
    path = f"{os.environ['PATH']}{os.pathsep}/usr/sbin"
    missing = [name for name in PROGRAMS if shutil.which(name, path=path) is None]
    return missing + ["root"] * (os.geteuid() != 0)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
    return port


class RealSlurm:
    """nodes: so many, n1, n2, ... environment: of whoever uses it."""

    def __init__(self, folder: Path, nodes: int) -> None:
        self.folder = folder
        self.conf = folder / "slurm.conf"
        path = f"{os.environ['PATH']}{os.pathsep}/usr/sbin"
        self.environment = {"SLURM_CONF": str(self.conf), "PATH": path}
        self.names = [f"n{number}" for number in range(1, nodes + 1)]
        host = socket.gethostname().partition(".")[0]
        lines = [
            f"NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={free_port()} CPUs=4 "
            "RealMemory=2000 State=UNKNOWN"
            for name in self.names
        ]
        values = {"host": host, "user": getpass.getuser(), "port": free_port(), "folder": folder}
        self.conf.write_text(_CONF.format(nodes="\n".join(lines), **values))

    def start(self) -> None:
        folder = self.folder
        (folder / "ctld").mkdir()
        key = folder / "munge.key"
        key.write_bytes(secrets.token_bytes(1024))
        key.chmod(0o600)
        files = {"key": key, "socket": "munge.sock", "pid": "munged.pid", "log": "munged.log"}
        flags = [f"--{what}-file={folder / str(name)}" for what, name in files.items()]
        flags[1] = f"--socket={folder / 'munge.sock'}"
        self.call("munged", "--force", *flags, f"--seed-file={folder / 'munged.seed'}")
        self.call("slurmctld", "-i", "-f", str(self.conf))
        for name in self.names:
            self.boot(name)
        deadline = time.monotonic() + WITHIN_S
        while self.call("sinfo", "-h", "-o", "%D %t").split() != [str(len(self.names)), "idle"]:
            assert time.monotonic() < deadline, self.call("sinfo", "-N")
            time.sleep(0.2)

    def boot(self, node: str) -> None:
        (self.folder / f"spool.{node}").mkdir(exist_ok=True)
        self.call("slurmd", "-f", str(self.conf), "-N", node)

    def call(self, *command: str) -> str:
        environment = os.environ | self.environment
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        return done.stdout.strip()

    def drain(self, node: str, reason: str) -> None:
        self.call("scontrol", "update", f"nodename={node}", "state=drain", f"reason={reason}")

    def power_off(self, node: str) -> None:
        """Everything of a node is gone at once."""
        _kill(self.folder / f"slurmd.{node}.pid")
        for process in _processes_of(node, str(self.conf)):
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)

    def words(self) -> str:
        """All that the scheduler tells of jobs: descriptions, scripts, its own files."""
        said = [self.call("scontrol", "show", "job", "-dd"), self.call("squeue", "--json")]
        jobs = self.call("squeue", "-h", "-o", "%F").split()
        said += [self.call("scontrol", "write", "batch_script", job, "-") for job in jobs]
        files = [path for path in self.folder.rglob("*") if path.is_file()]
        return "\n".join([*said, *(path.read_text(errors="replace") for path in files)])

    def stop(self) -> None:
        self.call("scancel", f"--user={getpass.getuser()}")
        for node in self.names:
            self.power_off(node)
        _kill(self.folder / "slurmctld.pid")
        _kill(self.folder / "munged.pid")


def _kill(pid_file: Path) -> None:
    with suppress(OSError, ValueError):
        os.kill(int(pid_file.read_text()), signal.SIGKILL)


def _processes_of(node: str, conf: str) -> list[int]:
    """Processes that Slurm runs on a node of this cluster."""
    wanted = {f"SLURMD_NODENAME={node}".encode(), f"SLURM_CONF={conf}".encode()}
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):
            if wanted <= set(path.read_bytes().split(b"\0")):
                found.append(int(path.parent.name))
    return found
