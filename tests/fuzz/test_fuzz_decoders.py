"""Whatever comes from another process or a disk is read as a value or refused, cleanly and soon.

An error of another kind, a lot of memory, a second of the processor: each would let one bad peer,
or one bad disk, take down a process that serves the job. `corpus` holds bytes that once did, or
might have; hypothesis spoils real ones further.
"""

import resource
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import make_corpus
import pytest
from decoders import DECODERS, Decoder
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from make_corpus import ANYWHERE

from trainmover.errors import ProtocolError, StateMismatch, UserError
from trainmover.server.checkpoints.check import Damaged

CORPUS = Path(__file__).parent / "corpus"
FILES = sorted(CORPUS.glob("*/*.bin"))
MEMORY_BYTES_MAX = 256 * 1024 * 1024
CPU_S_MAX = 2.0
REFUSALS = (ProtocolError, StateMismatch, UserError, Damaged)
LENGTHS = [b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\x00\x00\x00\x00", b"\xff" * 8]


@contextmanager
def little_memory() -> Iterator[None]:
    """What is asked for beyond it is not given, and seen as an error that nobody expects."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * resource.getpagesize() + MEMORY_BYTES_MAX
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (most, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def is_refused(decoder: Decoder, data: bytes) -> bool:
    """Raises what no decoder may raise."""
    begun_s, refusal = time.process_time(), None
    with little_memory():
        try:
            decoder.read(data)
        except REFUSALS as error:
            refusal = error
    assert time.process_time() - begun_s < CPU_S_MAX
    assert refusal is None or not isinstance(refusal.__cause__, MemoryError), "it asked for more"
    return refusal is not None


@pytest.mark.parametrize("file", FILES, ids=lambda file: f"{file.parent.name}/{file.stem}")
def test_the_corpus_of_a_decoder(file: Path) -> None:
    refused = is_refused(DECODERS[file.parent.name], file.read_bytes())
    assert not (refused and file.stem.startswith("good")), "real: make_corpus.py, if it has changed"


@pytest.mark.parametrize("name", DECODERS)
def test_real_messages_that_are_spoilt(name: str) -> None:
    for _, data in make_corpus.spoilt(name, DECODERS[name]):
        is_refused(DECODERS[name], data)


@pytest.mark.parametrize("what", ANYWHERE)
@pytest.mark.parametrize("name", DECODERS)
def test_what_is_hostile_anywhere(name: str, what: str) -> None:
    decoder, data = DECODERS[name], ANYWHERE[what]
    is_refused(decoder, data)
    is_refused(decoder, decoder.sealed(data))
    is_refused(decoder, decoder.seeds[0][:8] + data)


@st.composite
def spoilt(draw: st.DrawFn, seeds: list[bytes]) -> bytes:
    """A real message in which a few things were changed."""
    data = bytearray(draw(st.sampled_from(seeds)))
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, max(0, len(data) - 1)))
        match draw(st.sampled_from(["flip", "cut", "put in", "length", "twice"])):
            case "flip" if data:
                data[at] ^= draw(st.integers(1, 255))
            case "cut":
                del data[at : at + draw(st.integers(1, 64))]
            case "put in":
                data[at:at] = draw(st.binary(max_size=16))
            case "length":
                length = draw(st.sampled_from(LENGTHS))
                data[at : at + len(length)] = length
            case "twice":
                data[at:at] = data[at : at + 64]
    return bytes(data)


@pytest.mark.parametrize("name", DECODERS)
@settings(deadline=None, suppress_health_check=list(HealthCheck), max_examples=60)
@given(data=st.data())
def test_spoilt_messages_and_noise(name: str, data: st.DataObject) -> None:
    decoder = DECODERS[name]
    said = data.draw(st.one_of(spoilt(decoder.seeds), st.binary(max_size=100)))
    is_refused(decoder, said)
    is_refused(decoder, decoder.sealed(said))
