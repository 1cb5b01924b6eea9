"""Workers of a machine meet in a private folder, whatever the machine's own one is called."""

import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from trainmover.agent.socket_folder import NAME, PATH_MAX, make_socket_folder


@pytest.fixture
def directory() -> Iterator[Path]:
    made = Path(tempfile.mkdtemp(prefix="tm-"))
    yield made
    shutil.rmtree(made)


def is_private(folder: Path) -> bool:
    return stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_it_lies_in_the_machines_directory(directory: Path) -> None:
    directory.chmod(0o755)
    folder = make_socket_folder(directory)
    assert folder.parent == directory
    assert is_private(folder)
    assert make_socket_folder(directory) == folder


def test_where_that_has_too_long_a_name_it_lies_elsewhere(directory: Path) -> None:
    deep = directory / ("x" * 90)
    deep.mkdir()
    folder = make_socket_folder(deep)
    try:
        assert folder.parent == Path("/tmp")
        assert is_private(folder)
        assert len(str(folder / NAME)) <= PATH_MAX
        assert list(deep.iterdir()) == []
    finally:
        folder.rmdir()
