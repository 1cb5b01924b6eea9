"""A rank's state out of the files of a checkpoint: whole, or the file to blame is named."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import xxhash

from trainmover.errors import StateMismatch
from trainmover.protocol.checkpoint import bulk_name, state_name
from trainmover.state.snapshot import Snapshot
from trainmover.worker.join import going_back
from trainmover.worker.join.going_back import _from_files


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    """Tensors, which ranks may share, and what is the rank's own."""
    snapshot = Snapshot.of(0, 10, b"header", [torch.arange(1000.0)], None)
    snapshot.seal()
    parts = snapshot.bulk, snapshot.block[len(snapshot.bulk) :]
    names = bulk_name(xxhash.xxh3_128_hexdigest(parts[0])), state_name(0)
    for name, part in zip(names, parts, strict=True):
        (tmp_path / name).write_bytes(part)
    return [tmp_path / name for name in names]


def test_a_snapshot_is_put_together_from_its_files(files: list[Path]) -> None:
    assert _from_files(files).tensors[0].numel() == 4000


def spoil(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[20] ^= 1
    path.write_bytes(data)


def cut_short(path: Path) -> None:
    os.truncate(path, 10)


def as_fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize(
    ("damage", "why"),
    [
        (spoil, "is damaged: its checksum differs"),
        (cut_short, "is damaged: its checksum differs"),
        (Path.unlink, "cannot be read: No such file or directory"),
        (as_fifo, "cannot be read: it is no regular file"),
    ],
)
def test_the_file_that_is_damaged_is_named(
    files: list[Path], number: int, damage: Callable[[Path], None], why: str
) -> None:
    damage(files[number])
    with pytest.raises(StateMismatch) as raised:
        _from_files(files)
    assert raised.value.happened == f"{files[number]} {why}."


def test_what_fits_into_no_memory_is_refused(
    files: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(going_back, "size_of_regular", lambda path: 1 << 60)
    with pytest.raises(StateMismatch, match="has more than fits into memory"):
        _from_files(files)
