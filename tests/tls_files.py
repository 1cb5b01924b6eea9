"""Certificates for tests: made once for a process, in a folder of their own."""

import shutil
import tempfile
from atexit import register
from datetime import timedelta
from functools import cache
from pathlib import Path

from trainmover.tls.files import TlsFiles
from trainmover.tls.making import LASTS, make

HOSTS = ("127.0.0.1", "localhost")


@cache
def made(name: str, hosts: tuple[str, ...] = HOSTS, lasts: timedelta = LASTS) -> TlsFiles:
    """Another name is another authority."""
    folder = Path(tempfile.mkdtemp(prefix="tm-tls-"))
    register(shutil.rmtree, folder, ignore_errors=True)
    return make(folder / "tls", name, hosts, lasts)


def expired() -> TlsFiles:
    return made("expired", lasts=timedelta(seconds=-1))
