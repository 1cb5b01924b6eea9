"""The secrets of a run (its token, the key of its certificate) are in their files and nowhere else;
what a run leaves on disk is its user's. The run has TLS, from a fake worker's record to the end."""

import json
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from host_tools import Story

from trainmover.launch.run_job import RunHandle
from trainmover.protocol.messages import LogSpec

TOKEN = "a-token-that-is-easy-to-find-0123456789"


def processes() -> Iterator[psutil.Process]:
    yield psutil.Process()
    yield from psutil.Process().children(recursive=True)


def texts(folder: Path) -> Iterator[tuple[Path, bytes]]:
    """Every file below the folder, those of the secrets aside."""
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.name not in ("token", "key.pem"):
            yield path, path.read_bytes()


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    path = tmp_path / "token"
    path.write_text(TOKEN)
    path.chmod(0o600)
    return path


def test_the_secrets_are_told_nowhere(tmp_path: Path, token_file: Path) -> None:
    found: list[str] = []
    looked: list[int] = []
    secrets = [TOKEN]

    def tells(text: str) -> bool:
        return any(secret in text for secret in secrets)

    def look(handle: RunHandle) -> None:
        assert handle.run.tls is not None
        secrets.extend(Path(handle.run.tls.key).read_text().split("\n")[1:3])
        for process in processes():
            with suppress(psutil.NoSuchProcess):  # It ended while we looked.
                said = [*process.cmdline(), *process.environ().values()]
                found.extend(f"{process.cmdline()}: {word}" for word in said if tells(word))
                looked.append(process.pid)
        found.extend(str(path) for path, data in texts(tmp_path) if tells(data.decode("latin-1")))
        found.extend(["status"] * tells(json.dumps(handle.status())))
        (tmp_path / "finish").touch()

    log = LogSpec(show=[0], log_dir=str(tmp_path / "logs"), tee={0: 1})
    story = Story(tmp_path, token_file=token_file, log=log, tls=True).when_warm(look)
    result = story.run()
    assert result.code == 0, result.text
    assert len(looked) > 4
    said = [*story.heard, story.lines(), result.text, repr(result.job)]
    found += [text for text in said if tells(text)]
    found += [str(path) for path, data in texts(tmp_path) if tells(data.decode("latin-1"))]
    assert found == []


def test_files_of_a_run_are_for_its_user_only(tmp_path: Path, token_file: Path) -> None:
    open_ones: list[str] = []

    def look(handle: RunHandle) -> None:
        kept = [story.journal, *tmp_path.glob("journal*"), *(tmp_path / "logs").rglob("*.log")]
        modes = {path: stat.S_IMODE(path.stat().st_mode) for path in [*kept, tmp_path / "run"]}
        open_ones.extend(f"{path} {mode:o}" for path, mode in modes.items() if mode & 0o077)
        assert len(kept) > 3
        (tmp_path / "finish").touch()

    log = LogSpec(show=[0], log_dir=str(tmp_path / "logs"), tee={0: 1})
    story = Story(tmp_path, token_file=token_file, log=log, tls=True).when_warm(look)
    assert story.run().code == 0
    assert open_ones == []
