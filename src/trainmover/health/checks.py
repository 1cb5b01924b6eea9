# SPDX-License-Identifier: Apache-2.0
"""The checks of one machine. Each gives figures, or raises Unfit for what no machine may do.

They are MegaScale's and TRANSOM's, at the size of a few seconds: memory, disk, processor, loopback,
the way to other machines, and the GPUs. Results whose digest is known must have it bit for bit,
whatever adds in which order: all products and sums are of small whole numbers.
"""

import contextlib
import hashlib
import os
import shutil
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import psutil  # type: ignore[import-untyped]

from trainmover.errors import TrainmoverError
from trainmover.state.vault.client import VaultClient

MEMORY_BYTES_MAX = 256 * 2**20
MEMORY_PART = 16
"""Of what is free: so small a part of it."""
PATTERNS = (0x5555_5555_5555_5555, 0xAAAA_AAAA_AAAA_AAAA)
DISK_BYTES = 32 * 2**20
WAY_BYTES = 64 * 2**20
PART_BYTES = 4 * 2**20
PEER_BYTES = 16 * 2**20
SIDE = 768
ROUNDS = 8
PRODUCT = "ca425fe2b3f92580"
"""Digest of the product of `_factors`."""
GPU_SIDE, GPU_ROUNDS = 4096, 20
_GPU_QUERY = ("nvidia-smi", "--query-gpu=index,ecc.errors.uncorrected.volatile.total")
QUERY_S = 20.0


class Unfit(Exception):
    """What the machine did that no healthy one does, in words."""


def memory(pattern_bytes: int | None = None) -> dict[str, float]:
    """Patterns are written to a part of what is free, and read back."""
    free = psutil.virtual_memory().available
    size = pattern_bytes or min(MEMORY_BYTES_MAX, free // MEMORY_PART)
    words = np.empty(max(size // 8, 1), dtype=np.uint64)
    numbers = np.arange(len(words), dtype=np.uint64)
    begun = time.perf_counter()
    for pattern in PATTERNS:
        words.fill(pattern)
        _same(words, np.uint64(pattern))
    np.copyto(words, numbers)
    _same(words, numbers)
    took_s = time.perf_counter() - begun
    return {"memory_gb_s": 2 * (len(PATTERNS) + 1) * words.nbytes / took_s / 1e9}


def _same(words: np.ndarray, wanted: "np.ndarray | np.uint64") -> None:
    wrong = int(np.count_nonzero(words != wanted))
    if wrong:
        raise Unfit(f"memory gave back {wrong} of {len(words)} words with other bits")


def disk(folder: Path) -> dict[str, float]:
    """A file is written to the folder, made safe, and read back from the disk where that can be."""
    data = np.random.default_rng(1).bytes(DISK_BYTES)
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            begun = time.perf_counter()
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
            took_s = time.perf_counter() - begun
            if hasattr(os, "posix_fadvise"):
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            file.seek(0)
            again = file.read()
    except OSError as error:
        raise Unfit(f"{folder} cannot be written: {error.strerror or error}") from error
    if again != data:
        raise Unfit(f"a file in {folder} was read back with other bytes")
    return {"disk_mb_s": DISK_BYTES / took_s / 1e6}


def processor() -> dict[str, float]:
    """Products of matrices, whose digest is known."""
    left, right = _factors(SIDE)
    best_s = float("inf")
    for _ in range(ROUNDS):
        begun = time.perf_counter()
        product = left @ right
        best_s = min(best_s, time.perf_counter() - begun)
        if digest(product) != PRODUCT:
            raise Unfit("a product of two matrices came out with other bits than on any machine")
    return {"processor_gflop_s": 2 * SIDE**3 / best_s / 1e9}


def _factors(side: int) -> tuple[np.ndarray, np.ndarray]:
    """Whole numbers so small that f32 holds every sum of their products."""
    data = hashlib.shake_128(b"trainmover").digest(2 * side * side)
    left, right = np.frombuffer(data, np.uint8).reshape(2, side, side).astype(np.float32) % 17 - 8
    return left, right


def digest(product: np.ndarray) -> str:
    return hashlib.sha256(np.ascontiguousarray(product).astype("<i4").tobytes()).hexdigest()[:16]


def loopback() -> dict[str, float]:
    """Bytes from one thread to another, over TCP."""
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as listener:
        there = socket.create_connection(listener.getsockname(), timeout=QUERY_S)
        here, _ = listener.accept()
    sender = threading.Thread(target=here.sendall, args=(bytes(WAY_BYTES),), daemon=True)
    with contextlib.closing(there), contextlib.closing(here):
        begun, left = time.perf_counter(), WAY_BYTES
        sender.start()
        while left:
            left -= len(there.recv(min(left, PART_BYTES)))
        took_s = time.perf_counter() - begun
        sender.join()
    return {"loopback_gb_s": WAY_BYTES / took_s / 1e9}


def way(machine: str, address: str, token: bytes) -> float:
    """MB/s to the vault of another machine, which throws the bytes away. Raises Unfit."""
    part = bytes(PART_BYTES)
    try:
        vault = VaultClient(address, token)
        with contextlib.closing(vault):
            vault.throw_away(part)
            begun = time.perf_counter()
            for _ in range(PEER_BYTES // PART_BYTES):
                vault.throw_away(part)
            return PEER_BYTES / (time.perf_counter() - begun) / 1e6
    except TrainmoverError as error:
        raise Unfit(f"{machine} cannot be reached: {error.happened}") from error


def gpus() -> dict[str, float]:
    """Errors that the memory of any GPU could not correct, and products on each that can be used
    from here, whose bits are known. {} where there is none."""
    if shutil.which(_GPU_QUERY[0]) is None:
        return {}
    try:
        said = subprocess.run(
            [*_GPU_QUERY, "--format=csv,noheader"], capture_output=True, text=True, timeout=QUERY_S
        )
    except subprocess.TimeoutExpired as error:
        raise Unfit(f"nvidia-smi did not answer within {QUERY_S:.0f} s") from error
    if said.returncode:
        raise Unfit(f"nvidia-smi ended with {said.returncode}: {_last_line(said.stdout)}")
    for index, errors in _rows(said.stdout):
        if errors.isdecimal() and int(errors):
            raise Unfit(f"GPU {index} has {errors} memory errors that it could not correct")
    import torch  # Where there is a GPU only: it takes seconds.

    rates = [_gpu(index) for index in range(torch.cuda.device_count())]
    return {"gpu_tflop_s": min(rates)} if rates else {}


def _rows(text: str) -> Iterator[tuple[str, str]]:
    for line in text.splitlines():
        index, comma, errors = line.partition(",")
        if comma:
            yield index.strip(), errors.strip()


def _gpu(index: int) -> float:
    """TFLOP/s in f32 of one GPU. Raises Unfit."""
    import torch

    try:
        left, right = (torch.from_numpy(one).to(f"cuda:{index}") for one in _factors(GPU_SIDE))
        first = left @ right
        torch.cuda.synchronize(index)
        begun = time.perf_counter()
        for _ in range(GPU_ROUNDS):
            again = left @ right
        torch.cuda.synchronize(index)
        took_s = time.perf_counter() - begun
        rows = slice(0, 16)
        wanted = (left[rows].cpu().to(torch.float64) @ right.cpu().to(torch.float64)).float()
        if not torch.equal(first, again) or not torch.equal(first[rows].cpu(), wanted):
            raise Unfit(f"GPU {index} gave a product of two matrices with other bits")
    except RuntimeError as error:
        raise Unfit(f"GPU {index} cannot compute: {str(error).splitlines()[0]}") from error
    return 2 * GPU_SIDE**3 * GPU_ROUNDS / took_s / 1e12


def _last_line(text: str) -> str:
    return (text.strip().splitlines() or ["it said nothing"])[-1]
