# SPDX-License-Identifier: Apache-2.0
"""Examples at the end of each command's help. Each line is one that the command takes."""

EXAMPLES: dict[str, list[str]] = {
    "run": [
        "trainmover run --machines 4 --standbys 1 train.py --lr 3e-4",
        "trainmover run --machines 2 --nproc-per-node 8 --standbys 1 -m package.train",
        "trainmover run --machines 4 --checkpoint kept --resume auto --journal run.db train.py",
    ],
    "status": ["trainmover status", "trainmover status --watch", "trainmover status --json"],
    "top": ["trainmover top", "trainmover top --every 5 --run-id calm-otter"],
    "standbys": ["trainmover standbys", "trainmover standbys --run-id calm-otter --json"],
    "add": ["trainmover add", "trainmover add --machine m7 --rack r2"],
    "agent": [
        "trainmover agent --controller 10.0.0.5:7070 --token-file token --machine m1",
        "trainmover agent --controller 10.0.0.5:7070 --token-file token --machine m5 --standby",
    ],
    "move": ["trainmover move m2", 'trainmover move m2 --reason "its fan is loud"'],
    "drain": [
        "trainmover drain m2",
        'trainmover drain m3 m4 --reason "rack 7" --deadline 10m',
        'trainmover drain m2 --reason "new firmware" --json',
    ],
    "roll": [
        "trainmover roll",
        'trainmover roll --at-once 2 --reason "new kernel" --hold',
        "trainmover roll m1 m2 --detach --json",
    ],
    "place": [
        "trainmover place --from racks.json --dry-run",
        "trainmover place --by racks.py:assign --every 10m",
        'trainmover place --from racks.json --reason "switch 3 is slow" --json',
    ],
    "plan": [
        "trainmover plan",
        "trainmover plan stop",
        "trainmover plan continue --json",
    ],
    "health": ["trainmover health m3", "trainmover health m3 --json"],
    "cordon": [
        "trainmover cordon m3",
        "trainmover cordon m3 m4",
        'trainmover cordon m3 --reason "ECC errors"',
    ],
    "uncordon": ["trainmover uncordon m3", 'trainmover uncordon m3 --reason "mended"'],
    "kill": ["trainmover kill m1", "trainmover kill m1 --run-id calm-otter"],
    "stop": ["trainmover stop", 'trainmover stop --reason "the machine room is hot"'],
    "events": [
        "trainmover events --follow",
        "trainmover events -n 20 --journal run.db",
        "trainmover events --all --json",
    ],
    "incident": ["trainmover incident", "trainmover incident 2 --journal run.db"],
    "report": [
        "trainmover report",
        "trainmover report -o report.html",
        "trainmover report --journal run.db --json",
    ],
    "trace": [
        "trainmover trace 2 -o incident.json",
        "trainmover trace 2 -o incident.svg --journal run.db",
        "trainmover trace --whole -o run.json --journal run.db",
    ],
    "dashboard": ["trainmover dashboard", "trainmover dashboard --viewer --no-open"],
    "token": ["trainmover token --viewer", "trainmover token --json"],
    "memory": ["trainmover memory", "trainmover memory --json"],
    "losses": [
        "trainmover losses --journal run.db > losses.csv",
        "trainmover losses --rank 0 --json",
    ],
    "data": ["trainmover data", "trainmover data --steps --journal run.db"],
    "checkpoints": ["trainmover checkpoints kept", "trainmover checkpoints kept --export weights"],
    "controller": [
        "trainmover controller --run-dir ~/.cache/trainmover/runs/calm-otter",
        "trainmover controller --run-dir kept/run --json",
    ],
    "demo": ["trainmover demo", "trainmover demo --steps 400 --out demo"],
    "simulate": [
        "trainmover simulate --seeds 0..20",
        "trainmover simulate --seed 31 --trace",
        "trainmover simulate --seeds 0..500 --faults death,controller",
    ],
    "check": [
        "trainmover check train.py --epochs 1",
        "trainmover check --after 50 -m project.train",
        "trainmover check --json train.py",
    ],
    "doctor": [
        "trainmover doctor",
        "trainmover doctor --connect 10.0.0.5:7070",
        "trainmover doctor --journal /data/run.db --json",
    ],
    "completion": [
        "source <(trainmover completion bash)",
        "trainmover completion zsh > ~/.zfunc/_trainmover",
        "trainmover completion fish > ~/.config/fish/completions/trainmover.fish",
    ],
    "config": ["trainmover config", "trainmover config --config cluster.toml --json"],
    "version": ["trainmover version", "trainmover version --json"],
}


def examples_of(verb: str) -> str:
    """Return the end of the command's help; "" if there is none."""
    return "\n  ".join(["examples:", *EXAMPLES[verb]]) if verb in EXAMPLES else ""
