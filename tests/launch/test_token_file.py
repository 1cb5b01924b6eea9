"""A journal and its lock are our own files: no link of somebody else leads to another one."""

import os
from pathlib import Path

import pytest

from trainmover.errors import UserError
from trainmover.token_file import read_token

TOKEN = b"0123456789abcdef"


def put(path: Path, data: bytes = TOKEN, mode: int = 0o600) -> Path:
    path.write_bytes(data)
    path.chmod(mode)
    return path


@pytest.mark.parametrize("mode", [0o600, 0o400])
def test_the_token_is_what_stands_there_without_its_newline(tmp_path: Path, mode: int) -> None:
    assert read_token(put(tmp_path / "token", TOKEN + b"\n", mode)) == TOKEN


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644, 0o660, 0o601])
def test_one_that_others_can_reach_is_refused(tmp_path: Path, mode: int) -> None:
    with pytest.raises(UserError, match=f"open to other users .mode {mode:04o}.") as refusal:
        read_token(put(tmp_path / "token", mode=mode))
    assert refusal.value.do == f"chmod 600 {tmp_path}/token"
    assert TOKEN.decode() not in str(refusal.value)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to others")
def test_one_that_somebody_else_has_made_is_refused(tmp_path: Path) -> None:
    os.chown(put(tmp_path / "token"), 65534, 65534)
    with pytest.raises(UserError, match=r"belongs to user .*, who knows it") as refusal:
        read_token(tmp_path / "token")
    assert TOKEN.decode() not in str(refusal.value)


@pytest.mark.parametrize("data", [b"", b"short", b"\xff" * 32, b"two lines of\nsome length"])
def test_what_is_no_token_is_refused(tmp_path: Path, data: bytes) -> None:
    with pytest.raises(UserError, match="token"):
        read_token(put(tmp_path / "token", data))


def test_no_file_is_refused_and_a_pipe_is_none_others_can_read(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be read"):
        read_token(tmp_path / "token")
    reader, writer = os.pipe()
    os.write(writer, TOKEN)
    os.close(writer)
    assert read_token(Path(f"/dev/fd/{reader}")) == TOKEN
    os.close(reader)
