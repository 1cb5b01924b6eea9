"""Records as bytes: they travel whole or not at all, and belong to one script."""

import re
import struct
import tracemalloc
from dataclasses import fields
from pathlib import Path

import msgspec
import pytest
import torch
import xxhash
from hypothesis import given
from hypothesis import strategies as st
from sandbox_calls import BINDING, call, record_of

from trainmover.errors import ProtocolError, StateMismatch
from trainmover.sandbox import layout
from trainmover.sandbox.binding import binding_of
from trainmover.sandbox.process.gpus import gpus_of_host

RECORD = record_of(
    call(torch.arange(300)),
    call(op="barrier", seq=1, reduction=None),
    call(torch.linspace(0, 1, 5000), torch.ones(2), number=1, root=2),
    call(torch.zeros(0), seq=2),
)
DATA = layout.to_bytes(RECORD)
HEADER_AT = 32


def with_checksum(body: bytes) -> bytes:
    return b"tmsteps\x01" + xxhash.xxh3_128_digest(body) + body


def with_header(header: object, payloads: bytes = b"") -> bytes:
    data = msgspec.json.encode(header)
    return with_checksum(struct.pack("<Q", len(data)) + data + payloads)


def header_of(data: bytes) -> dict[str, object]:
    length = struct.unpack_from("<Q", data, 24)[0]
    header: dict[str, object] = msgspec.json.decode(data[HEADER_AT : HEADER_AT + length])
    return header


def test_a_record_travels_whole() -> None:
    back = layout.from_bytes(DATA)
    assert layout.to_bytes(back) == DATA
    assert back.entries.keys() == {(0, 0), (0, 1), (1, 0), (0, 2)}
    assert (back.kind(), back.own()) == (RECORD.kind(), RECORD.own())
    for field in fields(back):
        if field.name != "entries":
            assert getattr(back, field.name) == getattr(RECORD, field.name)


@given(st.integers(0, len(DATA) - 1))
def test_a_truncated_record_is_refused(length: int) -> None:
    with pytest.raises(ProtocolError, match="These bytes are no record of first steps"):
        layout.from_bytes(DATA[:length])


@given(st.integers(0, 8 * len(DATA) - 1))
def test_a_flipped_bit_is_found(bit: int) -> None:
    damaged = bytearray(DATA)
    damaged[bit // 8] ^= 1 << bit % 8
    with pytest.raises(ProtocolError):
        layout.from_bytes(damaged)


@given(st.binary(max_size=200), st.integers(0, 8 * len(DATA) - 1))
def test_hostile_bytes_with_a_right_checksum_are_refused_or_harmless(junk: bytes, bit: int) -> None:
    body = bytearray(DATA[24:])
    body[(bit // 8) % len(body)] ^= 1 << bit % 8
    for data in (with_checksum(junk), with_checksum(bytes(body)), DATA[:8] + junk):
        tracemalloc.start()
        try:
            layout.from_bytes(data)
        except ProtocolError:
            pass
        finally:
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
        assert peak < 50 * len(DATA) + 100_000


@pytest.mark.parametrize(
    "lie",
    [
        {"calls": [[0, 0, 0, [[0, 2**62, False]], 0]]},
        {"calls": [[0, 0, 0, [[0, -1, False]], 0]]},
        {"calls": [[0, 0, 0, [[0, 2**70, False]], 0]]},
        {"calls": [[0, 0, 99, [], 0]]},
        {"calls": [[0, 0, 0, [], 0], [0, 0, 0, [], 0]]},
        {"calls": [[0, 0, 0, [[1, [0.0, -1.0, 0.0, 0.0]]], 0]]},
        {"calls": [[0, 0, 0, [[1, [5.0, 1.0, 0.0, 1.0]]], 0]]},
        {"calls": [[0, 0, 0, [[7, 1]], 0]]},
        {"rank": "none"},
        {"binding": None},
    ],
    ids=str,
)
def test_headers_that_cannot_be_are_refused(lie: dict[str, object]) -> None:
    with pytest.raises(ProtocolError):
        layout.from_bytes(with_header({**header_of(DATA), "calls": [], **lie}))


def test_a_header_nested_without_end_is_refused() -> None:
    deep = b'{"more":' + b"[" * 100_000
    with pytest.raises(ProtocolError):
        layout.from_bytes(with_checksum(struct.pack("<Q", len(deep)) + deep))


def test_another_format_is_named() -> None:
    with pytest.raises(ProtocolError, match="their format is 9, this trainmover reads 1"):
        layout.from_bytes(DATA[:7] + b"\x09" + DATA[8:])


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"script": "other"}, "another text of the script than lies here"),
        ({"arguments": ("--lr", "0.2")}, r"arguments --lr 0\.1 and not --lr 0\.2"),
        ({"arguments": ()}, r"arguments --lr 0\.1 and not \(none\)"),
        ({"world_size": 8}, "world size 4 and not 8"),
        ({"nproc": 4}, "nproc 2 and not 4"),
        ({"torch": "2.12.1"}, r"torch 2\.13\.0 and not 2\.12\.1"),
        ({"trainmover": "0.2"}, r"trainmover 0\.1 and not 0\.2"),
        ({"python": "3.12.0"}, r"python 3\.11\.2 and not 3\.12\.0"),
    ],
)
def test_a_record_of_something_else_says_what_differs(change: dict[str, object], said: str) -> None:
    here = msgspec.structs.replace(BINDING, **change)
    with pytest.raises(StateMismatch, match=said) as refusal:
        here.check(BINDING, rank=2)
    assert len(str(refusal.value).split("\n")) == 3
    BINDING.check(BINDING, rank=2)


def test_a_binding_knows_the_machine_s_gpus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where torch can use them, and the script may."""
    driver = tmp_path / "nvidia"
    for number, model in enumerate(["NVIDIA H200", "NVIDIA H200"]):
        folder = driver / "gpus" / f"0000:{number}b:00.0"
        folder.mkdir(parents=True)
        (folder / "information").write_text(f"Model: \t\t {model}\nIRQ:   \t\t 18\n")
    assert gpus_of_host(driver, usable=True) == "NVIDIA H200 with driver unknown"
    said = (
        "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5\nGCC version: 12.2\n"
    )
    (driver / "version").write_text(said)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert gpus_of_host(driver, usable=True) == "NVIDIA H200 with driver 550.54.15"
    assert gpus_of_host(driver, usable=False) == gpus_of_host(tmp_path, usable=True) == "none"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert gpus_of_host(driver, usable=True) == "none"


def test_a_machine_with_other_gpus_is_named() -> None:
    here = msgspec.structs.replace(BINDING, gpus="NVIDIA H200 with driver 550.54.15")
    for other in ("none", "NVIDIA H200 with driver 570.86.10"):
        with pytest.raises(StateMismatch, match=f"gpus {re.escape(other)} and not NVIDIA H200"):
            here.check(msgspec.structs.replace(BINDING, gpus=other), 3)


def test_a_binding_knows_the_text_of_a_script_or_module(tmp_path, monkeypatch) -> None:
    script = tmp_path / "its_train.py"
    script.write_text("one")
    monkeypatch.syspath_prepend(str(tmp_path))

    def binding(name: str, *, module: bool = False):
        return binding_of([name, "--n", "\udc80"], module=module, world_size=4, nproc=2)

    one = binding(str(script))
    assert binding("its_train", module=True) == one
    assert one.arguments == ("--n", "\\udc80")
    script.write_text("two")
    assert binding(str(script)).script not in ("", one.script)
    for missing in ("nowhere.py", "no.such.module", "its_train.part"):
        assert binding(missing, module=not missing.endswith("py")).script == ""
    package = tmp_path / "its_package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "__main__.py").write_text("two")
    assert binding("its_package", module=True) == binding(str(script))
