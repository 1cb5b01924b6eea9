"""A Slurm of one host: commands as scripts on PATH, nodes that are names, jobs that are processes.

    FAKE_SLURM=folder   nodes.json: node -> [state, reason]; jobs/ID_INDEX.json: a job each

Each command first ends and starts what is due. A node takes one job.
"""

import argparse
import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

KILL_S = 5.0
COMMANDS = ("sbatch", "squeue", "sinfo", "scancel")


def install(folder: Path, nodes: int) -> dict[str, str]:
    """Make the commands; the environment that has them."""
    (folder / "bin").mkdir(parents=True)
    (folder / "jobs").mkdir()
    for name in COMMANDS:
        script = folder / "bin" / name
        script.write_text(f'#!/bin/sh\nexec {sys.executable} {__file__} {name} "$@"\n')
        script.chmod(0o755)
    states = {f"n{number}": ["idle", "none"] for number in range(1, nodes + 1)}
    (folder / "nodes.json").write_text(json.dumps(states))
    path = f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}"
    return {"PATH": path, "FAKE_SLURM": str(folder)}


class Cluster:
    """The folder, locked. jobs: `1_7` -> what is known of it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.nodes: dict[str, list[str]] = json.loads((folder / "nodes.json").read_text())
        files = sorted((folder / "jobs").glob("*.json"), key=lambda path: path.stat().st_mtime)
        self.jobs = {path.stem: json.loads(path.read_text()) for path in files}

    @classmethod
    @contextmanager
    def locked(cls, folder: Path) -> "Iterator[Cluster]":
        with (folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            cluster = cls(folder)
            cluster.go_on()
            yield cluster

    def set_node(self, node: str, state: str, reason: str = "none") -> None:
        self.nodes[node] = [state, reason]
        (self.folder / "nodes.json").write_text(json.dumps(self.nodes))

    def go_on(self) -> None:
        for key, job in list(self.jobs.items()):
            if job["pid"] and not _lives(job["pid"]):
                self.drop(key)
        taken = {job["node"] for job in self.jobs.values()}
        free = [n for n, (state, _) in self.nodes.items() if state == "idle" and n not in taken]
        for key, job in self.jobs.items():
            usable = [node for node in free if node not in job["exclude"]]
            if not job["pid"] and usable:
                free.remove(usable[0])
                self.start(key, job, usable[0])

    def start(self, key: str, job: dict, node: str) -> None:
        index = key.partition("_")[2]
        environment = os.environ | {"SLURM_ARRAY_TASK_ID": index, "SLURMD_NODENAME": node}
        with open(job["output"].replace("%a", index), "ab") as output:
            process = subprocess.Popen(
                ["/bin/sh", job["script"], *job["args"]], env=environment, stdout=output,
                stderr=output, stdin=subprocess.DEVNULL, start_new_session=True,
            )  # fmt: skip
        self.keep(key, job | {"node": node, "pid": process.pid})

    def keep(self, key: str, job: dict) -> None:
        self.jobs[key] = job
        (self.folder / "jobs" / f"{key}.json").write_text(json.dumps(job))

    def drop(self, key: str) -> None:
        del self.jobs[key]
        (self.folder / "jobs" / f"{key}.json").unlink()


def _lives(pid: int) -> bool:
    with suppress(OSError, IndexError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def sbatch(cluster: Cluster, argv: list[str]) -> str:
    parser = argparse.ArgumentParser()
    for flag in ("--parsable", "--exclusive", "--no-requeue"):
        parser.add_argument(flag, action="store_true")
    for flag in ("--job-name", "--array", "--nodes", "--ntasks", "--signal", "--output"):
        parser.add_argument(flag, required=True)
    parser.add_argument("--exclude", default="")
    parser.add_argument("-p", "--partition", default="main")
    parser.add_argument("script")
    parser.add_argument("args", nargs=argparse.REMAINDER)
    flags = parser.parse_args(argv)
    if flags.partition != "main":
        raise SystemExit("sbatch: error: Batch job submission failed: Invalid partition name")
    if (cluster.folder / "full").exists():
        raise SystemExit("sbatch: error: QOSMaxSubmitJobPerUserLimit")
    number = 1 + len(list(cluster.folder.glob("script.*")))
    script = cluster.folder / f"script.{number}"  # As Slurm does, it keeps a copy.
    script.write_bytes(Path(flags.script).read_bytes())
    for index in flags.array.split(","):
        cluster.keep(
            f"{number}_{index}",
            {"name": flags.job_name, "script": str(script), "args": flags.args, "node": "",
             "pid": 0, "output": flags.output, "exclude": flags.exclude.split(",")},
        )  # fmt: skip
    cluster.go_on()
    return str(number)


def squeue(cluster: Cluster, argv: list[str]) -> str:
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("-h", "-r", action="store_true", dest="quiet")
    parser.add_argument("-o", required=True)
    for flag in ("--states", "-t", "--sort", "--name", "--user"):
        parser.add_argument(flag, default="")
    flags = parser.parse_args(argv)
    rows = []
    for key, job in cluster.jobs.items():
        number, _, index = key.partition("_")
        runs = bool(job["pid"])
        if flags.name not in ("", job["name"]) or (flags.t == "PD" and runs):
            continue
        values = {
            "%F": number, "%K": index, "%t": "R" if runs else "PD", "%N": job["node"],
            "%r": "None" if runs else "Resources", "%L": job.get("left", "UNLIMITED"),
            "%P": "main", "%j": job["name"],
        }  # fmt: skip
        rows.append("|".join(values[one] for one in flags.o.split("|")))
    return "\n".join(rows)


def sinfo(cluster: Cluster, argv: list[str]) -> str:
    nodes = next(one for one in argv if one.startswith("--nodes=")).partition("=")[2].split(",")
    return "\n".join(f"{node}|{'|'.join(cluster.nodes[node])}" for node in nodes)


def scancel(cluster: Cluster, argv: list[str]) -> str:
    name = next((one.partition("=")[2] for one in argv if one.startswith("--name=")), "")
    for key, job in list(cluster.jobs.items()):
        if key not in argv and job["name"] != name:
            continue
        if not job["pid"]:
            cluster.drop(key)
            continue
        with suppress(ProcessLookupError):
            os.killpg(job["pid"], signal.SIGTERM)
        subprocess.Popen(
            ["/bin/sh", "-c", f"sleep {KILL_S}; kill -9 -{job['pid']}"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
    return ""


def main() -> None:
    command = {"sbatch": sbatch, "squeue": squeue, "sinfo": sinfo, "scancel": scancel}
    with Cluster.locked(Path(os.environ["FAKE_SLURM"])) as cluster:
        if (cluster.folder / "hangs").exists():
            time.sleep(0.1)
            raise SystemExit("slurm_load_jobs error: Unable to contact slurm controller")
        print(command[sys.argv[1]](cluster, sys.argv[2:]))


if __name__ == "__main__":
    main()
