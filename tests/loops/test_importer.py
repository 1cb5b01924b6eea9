"""Import of rewritten modules, and what it leaves as it was."""

import importlib
import importlib.resources
import importlib.util
import inspect
import linecache
import os
import shutil
import sys
import threading
import traceback
import zipfile
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from trainmover.loops import importer
from trainmover.loops.cache import rewrite_cached
from trainmover.loops.importer import LoopFinder, LoopLoader, code_of, code_of_module
from trainmover.loops.place import sites_of
from trainmover.loops.rewrite import rewrite

TEXT = """def f(n):
    found = []
    for x in range(n):
        found.append(1 // (2 - x))
    return found
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder on sys.path; modules that are imported meanwhile are forgotten."""
    before = {*sys.modules}
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    monkeypatch.setattr(sys, "pycache_prefix", None)
    yield tmp_path
    for name in {*sys.modules} - before:
        del sys.modules[name]


@pytest.fixture
def finder(folder: Path) -> Iterator[LoopFinder]:
    one = LoopFinder()
    one.install()
    yield one
    one.remove()


def load(name: str) -> ModuleType:
    importlib.invalidate_caches()
    return importlib.import_module(name)


def is_rewritten(module: ModuleType) -> bool:
    return hasattr(module, "__tm__") and isinstance(module.__loader__, LoopLoader)


def test_a_module_of_the_script_is_rewritten(folder: Path, finder: LoopFinder) -> None:
    (folder / "own_a.py").write_text(TEXT)
    module = load("own_a")
    assert is_rewritten(module)
    assert module.f(2) == [0, 1]
    assert [site.line for site in sites_of(module.__file__ or "")] == [3]
    assert inspect.getsource(module.f) == TEXT
    assert linecache.getline(module.__file__ or "", 3) == "    for x in range(n):\n"
    assert module.__cached__ == importlib.util.cache_from_source(module.__file__ or "")
    with pytest.raises(ZeroDivisionError) as caught:
        module.f(3)
    last = traceback.extract_tb(caught.value.__traceback__)[-1]
    assert (last.name, last.lineno, last.line) == ("f", 4, "found.append(1 // (2 - x))")


def test_a_finder_that_was_removed_rewrites_nothing(folder: Path, finder: LoopFinder) -> None:
    finder.install()
    assert sys.meta_path.count(finder) == 1
    finder.remove()
    finder.remove()
    (folder / "own_b.py").write_text(TEXT)
    assert not is_rewritten(load("own_b"))


def test_packages_namespaces_zips_and_resources(folder: Path, finder: LoopFinder) -> None:
    package = folder / "own_package"
    (package / "deep").mkdir(parents=True)
    (package / "__init__.py").write_text("for inside in (1,): pass\nfrom . import part\n")
    (package / "part.py").write_text("from .deep.leaf import f\n" + TEXT)
    (package / "deep" / "leaf.py").write_text(TEXT)
    (package / "data.txt").write_text("data")
    with zipfile.ZipFile(folder / "own.zip", "w") as archive:
        archive.writestr("zipped.py", TEXT)
    sys.path.append(str(folder / "own.zip"))
    try:
        assert not is_rewritten(load("zipped"))
    finally:
        sys.path.remove(str(folder / "own.zip"))
    module = load("own_package")
    assert is_rewritten(module)
    assert is_rewritten(sys.modules["own_package.part"])
    assert is_rewritten(sys.modules["own_package.deep.leaf"])
    assert module.__path__ == [str(package)]
    assert importlib.resources.files(module).joinpath("data.txt").read_text() == "data"
    assert is_rewritten(importlib.reload(module))


def test_what_an_installer_brought_is_left_alone(folder: Path, finder: LoopFinder) -> None:
    site = folder / "site-packages"
    (site / "transformers").mkdir(parents=True)
    (site / "other.py").write_text(TEXT)
    (site / "transformers" / "__init__.py").write_text(TEXT)
    (site / "transformers" / "trainer.py").write_text(TEXT)
    sys.path.insert(0, str(site))
    try:
        assert not is_rewritten(load("other"))
        assert not is_rewritten(load("transformers"))
        assert is_rewritten(load("transformers.trainer"))
    finally:
        sys.path.remove(str(site))


def test_a_module_that_cannot_be_compiled_fails_as_ever(folder: Path, finder: LoopFinder) -> None:
    (folder / "own_bad.py").write_text("for x in\n")
    with pytest.raises(SyntaxError, match="invalid syntax"):
        load("own_bad")
    with pytest.raises(ModuleNotFoundError):
        load("own_missing")


def test_finders_that_ask_one_another_come_to_an_end(folder: Path, finder: LoopFinder) -> None:
    class Asking(LoopFinder):
        def find_spec(self, fullname, path, target=None):  # type: ignore[no-untyped-def]
            for one in sys.meta_path:
                if one is not self:
                    spec = one.find_spec(fullname, path, target)
                    if spec is not None:
                        return spec
            return None

    (folder / "own_c.py").write_text(TEXT)
    (folder / "own_d.py").write_text(TEXT)
    asking = Asking()
    asking.install()
    try:
        assert is_rewritten(load("own_c"))
        finder.remove()
        finder.install()
        assert is_rewritten(load("own_d"))
    finally:
        asking.remove()


def test_threads_may_import_at_the_same_time(folder: Path, finder: LoopFinder) -> None:
    for number in range(8):
        (folder / f"own_t{number}.py").write_text(TEXT)
    importlib.invalidate_caches()
    threads = [
        threading.Thread(target=lambda k=k: load(f"own_t{k % 8}"))  # type: ignore[misc]
        for k in range(16)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(is_rewritten(sys.modules[f"own_t{number}"]) for number in range(8))


def test_code_of_a_script_and_of_a_module_that_is_run(folder: Path, finder: LoopFinder) -> None:
    script = folder / "train"
    script.write_text(TEXT + "print(f(2), __name__)\n")
    code = code_of(str(script))
    assert code.co_filename == str(script)
    assert "__tm__" in code.co_names
    (folder / "own_run").mkdir()
    (folder / "own_run" / "__init__.py").write_text("")
    (folder / "own_run" / "__main__.py").write_text(TEXT)
    code, spec = code_of_module("own_run")
    assert spec.name == "own_run.__main__"
    assert "__tm__" in code.co_names
    finder.remove()
    assert "__tm__" in code_of_module("own_run.__main__")[0].co_names
    for name in ("own_nothing", "own_run.nothing"):
        with pytest.raises(ImportError):
            code_of_module(name)
    script.write_text("for")
    with pytest.raises(SyntaxError):
        code_of(str(script))


def _cache_files(folder: Path) -> list[Path]:
    return [*(folder / "__pycache__").glob("*trainmover*")]


def test_rewritten_code_is_kept_by_source(
    folder: Path, finder: LoopFinder, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, source = str(folder / "own_e.py"), TEXT.encode()
    first = rewrite_cached(source, path)
    (file,) = _cache_files(folder)
    with monkeypatch.context() as patch:
        patch.setattr("trainmover.loops.cache.rewrite", None)
        assert rewrite_cached(source, path) == first
    for other in (source + b"\n", source.replace(b"found", b"names")):
        assert rewrite_cached(other, path) == rewrite(other, path)
    shutil.copy(
        file, importlib.util.cache_from_source(str(folder / "own_f.py"), optimization="trainmover0")
    )
    code = rewrite_cached(source, str(folder / "own_f.py")).code
    assert code is not None
    assert code.co_filename.endswith("own_f.py")
    monkeypatch.setattr("trainmover.loops.cache.VERSION", -1)
    assert rewrite_cached(source, path) == first
    assert len(_cache_files(folder)) == 2


def test_a_damaged_cache_is_not_used(folder: Path) -> None:
    path, source = str(folder / "own_g.py"), TEXT.encode()
    right = rewrite_cached(source, path)
    (file,) = _cache_files(folder)
    data = file.read_bytes()
    for bad in (
        b"",
        data[:40],
        data[:-1],
        data + b"x",
        data[:100] + b"\0" + data[101:],
        b"x" + data[1:],
    ):
        file.write_bytes(bad)
        assert rewrite_cached(source, path) == right
        assert file.read_bytes() == data


def test_a_cache_that_cannot_be_written_is_no_error(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, source = str(folder / "own_h.py"), TEXT.encode()
    (folder / "__pycache__").write_text("a file where the folder would be")
    assert rewrite_cached(source, path) == rewrite(source, path)
    (folder / "__pycache__").unlink()
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    rewrite_cached(source, path)
    assert not (folder / "__pycache__").exists()
    monkeypatch.setattr(sys, "dont_write_bytecode", False)

    def refuse(*args: object) -> None:
        raise OSError("no room")

    monkeypatch.setattr(os, "replace", refuse)
    assert rewrite_cached(source, path) == rewrite(source, path)
    assert [*(folder / "__pycache__").iterdir()] == []


def test_the_runtime_and_torch_are_never_rewritten() -> None:
    assert importer.LoopFinder().find_spec("torch.optim", None) is None
    assert importer.LoopFinder().find_spec("trainmover.cli", None) is None
