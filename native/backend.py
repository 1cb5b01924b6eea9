# SPDX-License-Identifier: Apache-2.0
"""The build backend: scikit-build-core, but for the editable install.

`pip install -e .` puts src on the path by a plain .pth file and builds the extension into
src/trainmover, from the build folder that `make` goes on with. So every way to start Python finds
the same extension, PYTHONPATH keeps its meaning, and a rebuild is a rebuild of what changed. It has
the synchronisation points that tests ask for (native/src/base/points.hpp); a wheel has none.

    python native/backend.py    build the extension of the present sources; fails where that fails

An install does without the extension where it cannot be built: the package is complete but for the
native communicator. TRAINMOVER_NATIVE=0 does not try, TRAINMOVER_NATIVE=1 fails instead.
"""

import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from shutil import which
from typing import Any

from scikit_build_core.build import build_editable as link_sources
from scikit_build_core.build import (
    build_sdist,
    get_requires_for_build_editable,
    get_requires_for_build_sdist,
    get_requires_for_build_wheel,
)
from scikit_build_core.build import build_wheel as pack
from scikit_build_core.errors import CMakeNotFoundError, FailedLiveProcessError

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
]

NATIVE = Path(__file__).resolve().parent
PACKAGE = NATIVE.parent / "src" / "trainmover"
BUILD = NATIVE.parent / "build" / "editable"

FAILURES = (OSError, subprocess.CalledProcessError, FailedLiveProcessError, CMakeNotFoundError)
LEFT_OUT = "trainmover: without its native communicator, as TRAINMOVER_NATIVE=0 asks."
NO_COMPILER = (
    "trainmover: there is no C++ compiler here, so groups are carried by gloo alone.\n"
    "Everything works; collectives and changes of members are slower than with the native one.\n"
    "Install one (apt-get install g++ cmake) and run the same command again."
)
NOT_BUILT = (
    "trainmover: the native communicator could not be built; above it says why.\n"
    "The package works without it; the native backend is not available.\n"
    "With a C++20 compiler and CMake: install again. TRAINMOVER_NATIVE=0 says not to try."
)


def build_wheel(
    wheel_directory: str,
    config_settings: dict[str, Any] | None = None,
    metadata_directory: str | None = None,
) -> str:
    try:
        return str(pack(wheel_directory, config_settings, metadata_directory))
    except (*FAILURES, SystemExit) as error:  # scikit-build-core exits where a compiler fails
        go_without(error)
    return str(pack(wheel_directory, config_settings, metadata_directory))


def build_editable(
    wheel_directory: str,
    config_settings: dict[str, Any] | None = None,
    metadata_directory: str | None = None,
) -> str:
    try:
        build_extension()
    except FAILURES as error:
        go_without(error)
    BUILD.mkdir(parents=True, exist_ok=True)
    (BUILD / "trainmover.pth").write_text(f"{PACKAGE.parent}\n")
    return str(link_sources(wheel_directory, config_settings, metadata_directory))


def go_without(error: BaseException) -> None:
    if os.environ.get("TRAINMOVER_NATIVE") in {"0", "1"}:
        raise error
    say(NOT_BUILT if has_compiler() else NO_COMPILER)
    os.environ["TRAINMOVER_NATIVE"] = "0"


def build_extension() -> None:
    """Leave src/trainmover with an extension of the present sources, or with none at all."""
    if os.environ.get("TRAINMOVER_NATIVE") == "0":
        remove_extensions()
        print(LEFT_OUT, file=sys.stderr)
        return
    import nanobind  # type: ignore[import-untyped]

    ninja = ["-G", "Ninja"] if which("ninja") and not (BUILD / "CMakeCache.txt").exists() else []
    configure = ["cmake", "-S", str(NATIVE), "-B", str(BUILD), *ninja, "-DTRAINMOVER_INPLACE=ON"]
    configure += ["-DCMAKE_BUILD_TYPE=Release", f"-DPython_EXECUTABLE={sys.executable}"]
    configure += [f"-Dnanobind_DIR={nanobind.cmake_dir()}", "-DTRAINMOVER_POINTS=ON"]
    try:
        subprocess.run([*configure, "-Wno-dev"], check=True, stdout=subprocess.DEVNULL)
        subprocess.run(["cmake", "--build", str(BUILD), "--parallel"], check=True)
    except BaseException:
        remove_extensions()
        raise


def remove_extensions() -> None:
    for extension in PACKAGE.glob("_native.*"):
        if extension.suffix in {".so", ".pyd"}:
            extension.unlink(missing_ok=True)


def say(text: str) -> None:
    """Also where pip keeps to itself what we write, if somebody sits there."""
    print(text, file=sys.stderr)
    if not sys.stderr.isatty():
        with suppress(OSError), open("/dev/tty", "w") as terminal:
            terminal.write(f"{text}\n")


def has_compiler() -> bool:
    return any(which(name) for name in (os.environ.get("CXX", "c++"), "c++", "g++", "clang++"))


if __name__ == "__main__":
    if not has_compiler():
        remove_extensions()
        print(NO_COMPILER, file=sys.stderr)
        sys.exit(0)
    try:
        build_extension()
    except FAILURES:
        sys.exit(NOT_BUILT)
