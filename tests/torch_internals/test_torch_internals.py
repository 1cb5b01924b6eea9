"""A torch that has renamed what trainmover reads is refused with a sentence, before any job."""

from pathlib import Path

import pytest
import torch

from trainmover.errors import TrainmoverError
from trainmover.torch_internals import check
from trainmover.torch_internals.check import _PARTS

INSTALLED = Path(torch.__file__).parent
NEEDED = [(file, name) for _, needed in _PARTS for file in needed for name in needed[file]]


def test_the_installed_torch_has_everything() -> None:
    check()


@pytest.mark.parametrize(("file", "name"), NEEDED, ids=lambda value: str(value))
def test_a_rename_is_named(file: str, name: str, tmp_path: Path) -> None:
    for other, _ in NEEDED:
        copy = tmp_path / other
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text((INSTALLED / other).read_text(encoding="utf-8"))
    text = (tmp_path / file).read_text()
    for either in name.split("|"):
        text = text.replace(either, "renamed")
    (tmp_path / file).write_text(text)
    with pytest.raises(TrainmoverError, match="no job is started with it") as caught:
        check(tmp_path)
    assert f"{name} in {file}" in str(caught.value)


def test_a_file_that_is_gone_is_named_with_all_it_had(tmp_path: Path) -> None:
    with pytest.raises(TrainmoverError) as caught:
        check(tmp_path)
    assert all(f"{name} in {file}" in str(caught.value) for file, name in NEEDED)
