# SPDX-License-Identifier: Apache-2.0
"""How fast state is fingerprinted, on one core: a part of `bench.state`."""

import statistics
import time

import torch
from torch import nn

from trainmover.state.proof.fingerprint import fingerprint
from trainmover.state.tracked import Tracked

LAYERS = 8
TRIALS = 7


def fingerprint_gb_s(width: int = 3072) -> float:
    """Gigabytes a second of a model with its AdamW, median; all that `fingerprint` does included.

    width  3072: about 0.9 GB, larger than any cache
    """
    tracked = _trained(width)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return statistics.median(_gb_s(tracked) for _ in range(TRIALS))
    finally:
        torch.set_num_threads(threads)


def _trained(width: int) -> Tracked:
    """After one step: the optimizer has its state."""
    model = nn.Sequential(*(nn.Linear(width, width) for _ in range(LAYERS)))
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.randn(2, width)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    tracked = Tracked()
    tracked.add("model", model)
    tracked.add("optimizer", optimizer)
    return tracked


def _gb_s(tracked: Tracked) -> float:
    began = time.thread_time()  # Of this core alone, whatever else runs.
    read = fingerprint(tracked).read
    return read / (time.thread_time() - began) / 1e9
