"""A journal is replayed in another process: nothing may depend on how that one orders its sets."""

import os
import subprocess
import sys

import pytest

SEEDS = ("3", "7")


def story(seed: str, hash_seed: str) -> list[str]:
    """Every event and effect of one world; the last line, which has a speed, left away."""
    command = [sys.executable, "-m", "trainmover", "simulate", "--seed", seed, "--trace"]
    environment = os.environ | {"PYTHONHASHSEED": hash_seed}
    told = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    return [line for line in told.stdout.splitlines() if "simulated in" not in line]


@pytest.mark.parametrize("seed", SEEDS)
def test_equal_events_give_equal_orders_in_every_process(seed: str) -> None:
    first = story(seed, "1")
    assert len(first) > 100
    assert story(seed, "2") == first
