# SPDX-License-Identifier: Apache-2.0
"""The random generators a step may draw from, as bytes: captured at every step, so cheaply.

Covers torch's CPU generator, CUDA's default generators once CUDA is initialised, `random`, and
numpy's global generator once numpy is imported. Generators a script makes for itself are its own:
`job.track` takes them, and those of a loader are looked for (`data/loader_parts.py`).

To ask them takes long: Python and numpy give their words as hundreds of objects, torch makes a
tensor. A step asks four times and mostly nobody has drawn meanwhile: then all the memory that such
a generator is made of is what it was, and so is the answer. Memory never is the answer itself, and
where it may not be all they are made of, they are asked.
"""

import ctypes
import random
import struct
import sys
from dataclasses import dataclass
from operator import is_
from typing import Any

import msgspec
import torch
import xxhash

from trainmover.asked import Pieces
from trainmover.errors import ProtocolError
from trainmover.protocol.malformed import MALFORMED
from trainmover.state import encode
from trainmover.torch_internals import generators
from trainmover.torch_internals.tensors import numpy_of

_WORDS = struct.Struct("<625I")  # 624 words of Mersenne Twister state and the place in them
_MT19937 = "MT19937"
_WITH_CUDA = torch.backends.cuda.is_built()  # type: ignore[no-untyped-call]


_OfNumpy = tuple[bytes, int, float] | bytes
"""Words and place, has_gauss, gauss; where a script has put another generator behind numpy's
functions, the state of that one."""


class _Generators(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    torch_cpu: bytes
    cuda: list[bytes]  # of the rank's own device; empty while CUDA is not initialised
    python: bytes
    python_gauss: float | None
    numpy: _OfNumpy | None


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(_Generators)


def capture() -> bytes:
    """State of all generators of this process, about 10 KB. Equal state gives equal bytes."""
    global _whole
    of = of_process()
    python = of[1]
    if _WITH_CUDA and torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        return _encoded(_parts(), _capture_cuda())
    if _whole is None or not all(map(is_, of, _whole.of)):
        _whole = _Whole(of)
    known = _whole
    now = None if known.memory is None else known.memory.read()
    if now is None or now is not known.seen or python.gauss_next is not known.gauss:
        parts = _parts()
        known.seen, known.gauss, known.data = now, parts[2], _encoded(parts, [])
    return known.data


def of_process() -> tuple[Any, Any, Any, Any]:
    """The generators themselves, but for CUDA's: torch's, Python's, numpy's, and what that draws
    from; None: it has none."""
    numpy: Any = sys.modules.get("numpy")
    functions = None if numpy is None else numpy.random.mtrand._rand
    bits = None if functions is None else functions._bit_generator
    return torch.default_generator, getattr(random.getstate, "__self__", None), functions, bits


def _parts() -> "_Parts":
    words, gauss = _capture_python()
    return _capture_torch(), words, gauss, _capture_numpy()


def _encoded(parts: "_Parts", cuda: list[bytes]) -> bytes:
    torch_cpu, words, gauss, numpy = parts
    return _encoder.encode(_Generators(torch_cpu, cuda, words, gauss, numpy))


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
        _draw_from(_MT19937)
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
    except (*MALFORMED, ValueError, TypeError, RuntimeError, LookupError, struct.error) as error:
        raise ProtocolError(
            f"Bytes that should hold RNG states do not: {error}",
            means="The generators may be half restored: this process must not train on.",
            do="All processes of a job must run the same versions of trainmover and torch.",
        ) from error
    for generator in state.cuda:
        torch.cuda.set_rng_state(_tensor(generator), torch.cuda.current_device())


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
    """Of the device that the rank works on, which has another number where it is taken over. To ask
    another one would open it."""
    return [torch.cuda.get_rng_state(torch.cuda.current_device()).numpy().tobytes()]


_Parts = tuple[bytes, bytes, float | None, _OfNumpy | None]
"""Of torch's generator on the CPU, Python's (words, gauss) and numpy's."""
_Place = tuple[int, int]
"""Address and size of memory."""


def _pieces(places: list[_Place] | None) -> Pieces | None:
    if places is None:
        return None
    return Pieces([at for at, _ in places], [size for _, size in places])


class _Whole:
    """All of them, by whose they are: what lay there as they were asked for, and the answer. Mostly
    nobody has drawn from any."""

    def __init__(self, of: tuple[Any, Any, Any, Any]) -> None:
        self.of = of
        torchs, pythons, numpys, bits = of
        places = [generators.places_of(torchs), _words_of(pythons)]
        places.append([] if numpys is None else _words_of_numpy(numpys, bits))
        known = [place for one in places if one is not None for place in one]
        self.memory = None if None in places else _pieces(known)
        self.seen: bytes | None = None
        self.gauss: float | None = None
        self.data = b""


_whole: _Whole | None = None


class _Torch:
    """torch's generator on the CPU: where it lies, what lay there as it was asked for, and the
    answer."""

    def __init__(self, generator: torch.Generator) -> None:
        self.generator = generator
        self.memory = _pieces(generators.places_of(generator))
        self.seen: bytes | None = None
        self.state = b""


_torch: _Torch | None = None


def _capture_torch() -> bytes:
    global _torch
    if _torch is None or _torch.generator is not torch.default_generator:
        _torch = _Torch(torch.default_generator)
    known = _torch
    now = None if known.memory is None else known.memory.read()
    if now is None or now is not known.seen:
        known.seen, known.state = now, numpy_of(known.generator.get_state()).tobytes()
    return known.state


class _Python:
    """The generator behind `random`'s functions: where its words lie, what lay there as they were
    asked for, and the answer."""

    def __init__(self, generator: random.Random) -> None:
        self.generator = generator
        self.memory = _pieces(_words_of(generator))
        self.seen: bytes | None = None
        self.words = b""


_python: _Python | None = None


def _capture_python() -> tuple[bytes, float | None]:
    """Words and place; the normal number that is kept back is an attribute, and always read."""
    global _python
    generator: Any = getattr(random.getstate, "__self__", None)
    if _python is None or _python.generator is not generator:
        _python = _Python(generator)
    known = _python
    now = None if known.memory is None else known.memory.read()
    if now is None or now is not known.seen:
        _, words, gauss = random.getstate()
        known.seen, known.words = now, _WORDS.pack(*words)
        return known.words, gauss
    return known.words, generator.gauss_next


def _words_of(generator: random.Random) -> list[_Place] | None:
    """The words and the place in them, whole: CPython's object is its head and nothing else. None
    for another generator, or another Python."""
    head = object.__basicsize__
    in_c: Any = random.Random.__base__
    size: int = in_c.__basicsize__ - head
    fits = _WORDS.size <= size < _WORDS.size + ctypes.sizeof(ctypes.c_void_p)
    if type(generator) is not random.Random or sys.implementation.name != "cpython" or not fits:
        return None
    return [(id(generator) + head, size)]


class _Numpy:
    """The same of numpy's functions.

    The words alone do not do: a normal number that is kept back lies in the object itself, and
    comes and goes without them (it is taken, or `set_state` puts one there). So the whole object
    counts, but for its head, in which references are counted.
    """

    def __init__(self, state: Any, generator: Any) -> None:
        self.state, self.generator = state, generator
        self.memory = _pieces(_words_of_numpy(state, generator))
        self.seen: bytes | None = None
        self.captured: tuple[bytes, int, float] = b"", 0, 0.0


def _words_of_numpy(state: Any, generator: Any) -> list[_Place] | None:
    if type(generator).__name__ != _MT19937:
        return None
    head = object.__basicsize__
    own = id(state) + head, type(state).__basicsize__ - head
    return [own, (generator.ctypes.state_address, _WORDS.size)]


_numpy_known: _Numpy | None = None


def _capture_numpy() -> _OfNumpy | None:
    global _numpy_known
    numpy: Any = sys.modules.get("numpy")
    if numpy is None:
        return None
    functions = numpy.random.mtrand._rand
    known, generator = _numpy_known, functions._bit_generator
    if known is None or known.state is not functions or known.generator is not generator:
        known = _numpy_known = _Numpy(functions, generator)
    now = None if known.memory is None else known.memory.read()
    if now is not None and now is known.seen:
        return known.captured
    state = numpy.random.get_state(legacy=False)
    if state["bit_generator"] != _MT19937:
        return encode.encode(state)
    words = state["state"]["key"].astype("<u4", copy=False).tobytes()
    place = struct.pack("<I", state["state"]["pos"])
    known.seen = now
    known.captured = words + place, int(state["has_gauss"]), float(state["gauss"])
    return known.captured


def _restore_numpy(state: _OfNumpy | None) -> None:
    if state is None:
        return
    import numpy

    if isinstance(state, bytes):
        other = encode.decode(state)
        _draw_from(other["bit_generator"])
        numpy.random.set_state(other)
        return
    _draw_from(_MT19937)
    data, has_gauss, gauss = state
    words = _WORDS.unpack(data)
    key = numpy.array(words[:-1], dtype=numpy.uint32)
    numpy.random.set_state((_MT19937, key, words[-1], has_gauss, gauss))


def _draw_from(kind: str) -> None:
    """Let numpy's functions draw from a generator of this kind. Raises ValueError: there is none.

    kind: the name of a class of numpy's
    """
    numpy: Any = sys.modules["numpy"]
    if type(numpy.random.mtrand._rand._bit_generator).__name__ == kind:
        return
    make = getattr(numpy.random, kind, None)
    if not (isinstance(make, type) and issubclass(make, numpy.random.BitGenerator)):
        raise ValueError(f"numpy has no generator {kind!r}")
    numpy.random.set_bit_generator(make(0))
