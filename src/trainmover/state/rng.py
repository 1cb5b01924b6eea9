"""The random generators a step may draw from, as bytes: captured at every step, so cheaply.

Covers torch's CPU generator, CUDA's default generators once CUDA is initialised, `random`, and
numpy's global generator once numpy is imported. Generators a script makes for itself are its own:
`job.track` takes them, and those of a loader are looked for (`data/loader_parts.py`).
"""

import ctypes
import random
import struct
import sys
from dataclasses import dataclass
from typing import Any

import msgspec
import torch
import xxhash

from trainmover.errors import ProtocolError
from trainmover.protocol.malformed import MALFORMED

_WORDS = struct.Struct("<625I")  # 624 words of Mersenne Twister state and the place in them
_MT19937 = "MT19937"


class _Generators(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    torch_cpu: bytes
    cuda: list[bytes]  # by device index; empty while CUDA is not initialised
    python: bytes
    python_gauss: float | None
    numpy: tuple[bytes, int, float] | None  # words and place, has_gauss, gauss


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(_Generators)


def capture() -> bytes:
    """State of all generators of this process, about 10 KB. Equal state gives equal bytes."""
    _, words, gauss = random.getstate()
    return _encoder.encode(
        _Generators(
            torch_cpu=torch.get_rng_state().numpy().tobytes(),
            cuda=_capture_cuda(),
            python=_WORDS.pack(*words),
            python_gauss=gauss,
            numpy=_capture_numpy(),
        )
    )


def seed_as(job_seed: int, rank: int) -> None:
    """As a fresh process of `rank` may find its generators: in every process that is this rank.

    Under torchrun each rank begins with numbers of its own, left to chance. Here processes are
    forked from one, so all would begin alike; and whoever takes a rank must begin with the numbers
    that it had. (CUDA's generators begin with a seed of torch's own, the same everywhere.)
    """
    seed = xxhash.xxh3_128_intdigest(f"{job_seed}/{rank}".encode())
    random.seed(seed)
    torch.default_generator.manual_seed(seed & 0x7FFFFFFFFFFFFFFF)
    numpy = _numpy()
    if numpy is not None:
        numpy.random.seed([seed >> shift & 0xFFFFFFFF for shift in range(0, 128, 32)])


def _numpy() -> Any:
    """Imported now: a script that does so later would find it with a seed of its own."""
    try:
        import numpy
    except ImportError:
        return None
    return numpy


def restore(data: bytes) -> None:
    """Put back what `capture` gave, in this process or another. Raises ProtocolError.

    A generator that the capturing process did not use (numpy not imported, CUDA not initialised)
    is left alone.
    """
    try:
        state = _decoder.decode(data)
        words = _WORDS.unpack(state.python)
        random.setstate((3, words, state.python_gauss))
        torch.set_rng_state(_tensor(state.torch_cpu))
        _restore_numpy(state.numpy)
    except (*MALFORMED, ValueError, TypeError, RuntimeError, struct.error) as error:
        raise ProtocolError(
            f"Bytes that should hold RNG states do not: {error}",
            means="The generators may be half restored: this process must not train on.",
            do="All processes of a job must run the same versions of trainmover and torch.",
        ) from error
    for index, generator in enumerate(state.cuda):
        torch.cuda.set_rng_state(_tensor(generator), index)


@dataclass(frozen=True)
class RngState:
    """All generators at one moment; two are equal when every generator was."""

    data: bytes

    @classmethod
    def now(cls) -> "RngState":
        return cls(capture())

    def restore(self) -> None:
        restore(self.data)


def _tensor(data: bytes) -> torch.Tensor:
    return torch.frombuffer(bytearray(data), dtype=torch.uint8)


def _capture_cuda() -> list[bytes]:
    if not torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        return []
    devices = range(torch.cuda.device_count())
    return [torch.cuda.get_rng_state(index).numpy().tobytes() for index in devices]


_numpy_seen: tuple[bytes, tuple[bytes, int, float]] | None = None


def _capture_numpy() -> tuple[bytes, int, float] | None:
    global _numpy_seen
    numpy: Any = sys.modules.get("numpy")
    if numpy is None:
        return None
    memory = _numpy_memory(numpy)
    if memory is not None and _numpy_seen is not None and memory == _numpy_seen[0]:
        return _numpy_seen[1]
    state = numpy.random.get_state(legacy=False)
    if state["bit_generator"] != _MT19937:
        return None  # Replaced by the script with a generator of its own choice: its to track.
    words = state["state"]["key"].astype("<u4", copy=False).tobytes()
    place = struct.pack("<I", state["state"]["pos"])
    captured = words + place, int(state["has_gauss"]), float(state["gauss"])
    _numpy_seen = (memory, captured) if memory is not None else None
    return captured


def _numpy_memory(numpy: Any) -> bytes | None:
    """All that its state is made of, as it lies in memory: a tenth of the cost of asking for it.

    The words alone do not do: a normal number that is kept back lies in the object itself, and
    comes and goes without them (it is taken, or `set_state` puts one there). So the whole object
    counts, but for its head, in which references are counted.
    """
    state: Any = numpy.random.mtrand._rand
    generator = state._bit_generator
    if type(generator).__name__ != _MT19937:
        return None
    head = object.__basicsize__
    own = ctypes.string_at(id(state) + head, type(state).__basicsize__ - head)
    return own + ctypes.string_at(generator.ctypes.state_address, _WORDS.size)


def _restore_numpy(state: tuple[bytes, int, float] | None) -> None:
    if state is None:
        return
    import numpy

    data, has_gauss, gauss = state
    words = _WORDS.unpack(data)
    key = numpy.array(words[:-1], dtype=numpy.uint32)
    numpy.random.set_state((_MT19937, key, words[-1], has_gauss, gauss))
