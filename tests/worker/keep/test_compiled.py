"""What other ranks have compiled is taken in, and nothing else is."""

import pickle
import subprocess
import sys
from pathlib import Path

import pytest
from compiled_code import packed

from trainmover.errors import ProtocolError
from trainmover.state.encode import encode
from trainmover.worker.keep import compiled


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"garbage",
        encode(["not bytes", {}]),
        encode([b"", {"../outside.so": b"x"}]),
        encode([b"", {"/tmp/outside.so": b"x"}]),
        encode([b"", {"script.py": b"x"}]),
        encode([b""]),
        encode([b"garbage", {}]),
        encode([b"", {"inside.so": "no bytes"}]),
    ],
)
def test_what_is_nothing_of_the_kind_is_refused(cache: Path, data: bytes) -> None:
    with pytest.raises(ProtocolError):
        compiled.unpack(data)
    assert not cache.exists() or not list(cache.rglob("*.so"))


@pytest.mark.parametrize("kind", ["inductor", "autotune", "aot_autograd", "precompile"])
@pytest.mark.parametrize("key", ["x/../../outside", "../outside", "/tmp/outside", "", "\0"])
def test_a_key_that_leads_out_of_the_cache_is_refused(
    cache: Path, tmp_path: Path, kind: str, key: str
) -> None:
    with pytest.raises(ProtocolError, match=r"leads out of the cache|AssertionError"):
        compiled.unpack(packed(kind, key, b"content", {"inside.so": b"x"}))
    assert {path.name for path in tmp_path.iterdir()} <= {"cache"}
    assert not list(cache.rglob("*.so"))


def test_what_cannot_be_loaded_is_refused_whatever_it_raises(cache: Path) -> None:
    for content in (b"no pickle", pickle.dumps(0)):
        with pytest.raises(ProtocolError, match="cannot be loaded"):
            compiled.unpack(packed("inductor", "fabcdef", content))


SCRIPT = """
import sys, torch
from pathlib import Path
from torch._dynamo.utils import counters
from trainmover.worker.keep import compiled
if sys.argv[1] == "take":
    compiled.unpack(Path(sys.argv[2]).read_bytes())
step = torch.compile(lambda x: (x.sin() * 2 + x.cos()).sum(0))
step(torch.ones(8, 64))
if sys.argv[1] == "give":
    Path(sys.argv[2]).write_bytes(compiled.packed().data)
print("hits", counters["inductor"]["fxgraph_cache_hit"])
"""


def run(what: str, blob: Path) -> str:
    command = [sys.executable, "-c", SCRIPT, what, str(blob)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.mark.soak
def test_another_machine_need_not_compile(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blob = tmp_path / "blob"
    assert "hits 0" in run("give", blob)
    kernels = {path.name for path in cache.rglob("*.main.so")}
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "other"))
    assert "hits 1" in run("take", blob)
    assert {path.name for path in (tmp_path / "other").rglob("*.main.so")} == kernels


def test_nothing_compiled_is_nothing_to_share() -> None:
    ran = "from trainmover.worker.keep import compiled; print(compiled.packed())"
    done = subprocess.run([sys.executable, "-c", ran], capture_output=True, text=True, check=True)
    assert done.stdout == "None\n"
