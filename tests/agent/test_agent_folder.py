"""An agent removes the folder that it made, and nothing of the user's."""

import stat
from pathlib import Path

import pytest

from trainmover import ownership
from trainmover.agent.config import AgentConfig
from trainmover.agent.folder import make_folder
from trainmover.errors import UserError
from trainmover.ids import MachineId


def config(directory: Path | None) -> AgentConfig:
    return AgentConfig(
        controller="127.0.0.1:1", machine=MachineId("m1"), nproc=1, standby=False,
        token_file=Path("t"), directory=directory,
    )  # fmt: skip


@pytest.mark.parametrize("below", ["new", "deeper/new"])
def test_a_new_folder_is_private_and_goes_at_the_end(tmp_path: Path, below: str) -> None:
    folder = make_folder(config(tmp_path / below))
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    (folder / "0").mkdir()
    ownership.remove_marked(folder)
    assert not folder.exists()


def test_without_any_given_one_is_made() -> None:
    folder = make_folder(config(None))
    assert ownership.is_marked(folder)
    ownership.remove_marked(folder)
    assert not folder.exists()


def test_a_folder_with_something_of_the_users_is_not_taken(tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.mkdir(mode=0o700)
    (mine / "thesis.tex").write_text("precious")
    with pytest.raises(UserError, match="has something in it that is not trainmover's"):
        make_folder(config(mine))
    assert [path.name for path in mine.iterdir()] == ["thesis.tex"]


def test_one_that_others_can_enter_is_refused_and_keeps_its_mode(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir(mode=0o755)
    with pytest.raises(UserError, match="is open to other users"):
        make_folder(config(tmp_path / "open"))
    assert stat.S_IMODE((tmp_path / "open").stat().st_mode) == 0o755


def test_what_a_killed_agent_has_left_is_taken_again(tmp_path: Path) -> None:
    folder = make_folder(config(tmp_path / "m1"))
    (folder / "spec.msgpack").touch()
    assert make_folder(config(tmp_path / "m1")) == folder
