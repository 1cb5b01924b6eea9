"""Frameworks whose scripts run as their users write them (`e2e/frameworks`), at fixed versions."""

import subprocess
import sys
from pathlib import Path

import pytest

PACKAGES = (
    *("transformers==5.23.0", "accelerate==1.15.0", "lightning==2.6.6", "pytorch-lightning==2.6.6"),
    *(
        "huggingface_hub",
        "tokenizers",
        "safetensors",
        "regex",
        "tqdm",
        "pyyaml",
        "filelock",
        "typer",
    ),
    *("packaging", "requests", "httpx", "httpcore", "anyio", "certifi", "h11", "idna", "sniffio"),
    *("fsspec", "lightning-utilities", "torchmetrics", "psutil", "hf-xet", "shellingham", "click"),
    *("typing_extensions", "httpx2", "httpcore2", "truststore"),
)
"""With what they import; torch is there already."""

FOLDER = Path(__file__).parent / "e2e" / "frameworks"
SCRIPTS = ("accelerated", "lit", "trained")


@pytest.fixture(scope="session")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of the frameworks, as an installer lays it out."""
    folder = tmp_path_factory.mktemp("frameworks") / "site-packages"
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target"]
    subprocess.run([*command, str(folder), *PACKAGES], check=True, timeout=600)
    return folder


@pytest.fixture
def frameworks(packages: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes that are started find them."""
    monkeypatch.setenv("PYTHONPATH", str(packages))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
