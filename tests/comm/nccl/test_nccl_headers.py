"""The binding of libnccl beside a real nccl.h and a real library; neither needs a GPU.

Headers come from wheels of nvidia-nccl, and TRAINMOVER_NCCL_HEADERS (colons between).
"""

import ctypes
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from trainmover.comm.nccl import library as nccl
from trainmover.comm.nccl import types

_WHEELS = [Path(folder or ".") / "nvidia/nccl/include/nccl.h" for folder in sys.path]
_NAMED = [Path(name) for name in os.environ.get("TRAINMOVER_NCCL_HEADERS", "").split(":") if name]
HEADERS = list(dict.fromkeys([*_NAMED, *filter(Path.exists, _WHEELS)]))

STUBS = {
    "cuda_runtime.h": "typedef void *cudaStream_t, *cudaEvent_t;\n"
    "#define __CUDA_BF16_TYPES_EXIST__",
    "cuda_fp16.h": "",
    "cuda_bf16.h": "",
}

CODES = {
    "ncclSuccess": nccl.SUCCESS,
    "ncclUnhandledCudaError": nccl.CUDA_ERROR,
    "ncclSystemError": nccl.SYSTEM_ERROR,
    "ncclInternalError": nccl.INTERNAL_ERROR,
    "ncclRemoteError": nccl.REMOTE_ERROR,
    "ncclInProgress": nccl.IN_PROGRESS,
    "ncclSum": nccl.SUM,
    "ncclProd": nccl.PRODUCT,
    "ncclMax": nccl.MAX,
    "ncclMin": nccl.MIN,
    "ncclAvg": nccl.AVG,
    "ncclScalarHostImmediate": 1,
    "NCCL_CONFIG_UNDEF_INT": nccl._UNDEFINED,
}


@pytest.fixture(params=HEADERS or [Path()], ids=str)
def header(request: pytest.FixtureRequest) -> Any:
    if not HEADERS:
        pytest.skip("needs nccl.h: a wheel of nvidia-nccl, or TRAINMOVER_NCCL_HEADERS")
    return request.param


def bound() -> dict[str, int]:
    """Return the binding's value of each expression."""
    made, expected = nccl._Config(), dict(CODES)
    for ours, *_ in made._fields_:
        field, (first, *more) = getattr(nccl._Config, ours), ours.split("_")
        name = first + "".join(map(str.capitalize, more)).replace("Ctas", "CTAs")
        expected[f"offsetof(ncclConfig_t, {name})"] = field.offset
        expected[f"sizeof(((ncclConfig_t *)0)->{name})"] = field.size
    for dtype, code in types._CODES.items():
        name = str(dtype).removeprefix("torch.").capitalize()
        expected[f"nccl{name.replace('_', '').removesuffix('fn')}"] = code
    for name in ("ncclResult_t", "ncclDataType_t", "ncclRedOp_t", "ncclScalarResidence_t"):
        expected[f"sizeof({name})"] = ctypes.sizeof(ctypes.c_int)
    return {
        **expected,
        "sizeof(ncclUniqueId)": ctypes.sizeof(nccl.UniqueId),
        "initial.magic": made.magic,
        f"sizeof(ncclConfig_t) >= {ctypes.sizeof(made)}": True,
        f"NCCL_VERSION_CODE >= {made.version}": True,
    }


def test_the_binding_is_as_the_header(header: Path, tmp_path: Path) -> None:
    chosen = shutil.which(os.environ.get("CC", "cc")) or shutil.which("gcc")
    if chosen is None:
        pytest.skip("needs a C compiler")
    for name, text in STUBS.items():
        (tmp_path / name).write_text(text)
    text = header.read_text()  # Float8 came with 2.24.
    expected = {name: n for name, n in bound().items() if "Float8" not in name or name in text}
    lines = "".join(f'printf("%lld\\n", (long long)({name}));\n' for name in expected)
    (tmp_path / "show.c").write_text(
        f'#include <stddef.h>\n#include <stdio.h>\n#include "{header.resolve()}"\n'
        "int main(void) {\nncclConfig_t initial = NCCL_CONFIG_INITIALIZER;\n"
        f"{lines}return 0;\n}}\n"
    )
    command = [chosen, "show.c", "-I", str(tmp_path), "-o", "show"]
    subprocess.run(command, cwd=tmp_path, check=True)
    shown = subprocess.run([tmp_path / "show"], capture_output=True, text=True, check=True)
    assert dict(zip(expected, map(int, shown.stdout.split()), strict=True)) == expected


ASKS = """
import sys
from trainmover.comm.nccl.library import Library, NcclError
library = Library(sys.argv[1])
first, second = library.unique_id(), library.unique_id()
assert first.to_hex() != second.to_hex()
library.group_start()
library.group_end()
try:
    library.async_error(None)
except NcclError as error:
    print(library.version, error.code, error)
"""


def test_the_real_library_answers_without_a_driver(header: Path) -> None:
    library = header.resolve().parents[1] / "lib/libnccl.so.2"
    if not library.exists():
        pytest.skip(f"needs {library}")
    environment = {**os.environ, "NCCL_SOCKET_IFNAME": "lo"}
    command = [sys.executable, "-c", ASKS, str(library)]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0, ran.stderr
    said = ran.stdout.splitlines()[-1]
    version, code, text = said.split(maxsplit=2)
    macro = f"NCCL_VERSION_CODE {version}"
    assert macro in " ".join(header.read_text().split()), (version, "is not the header's")
    assert (int(code), "ncclCommGetAsyncError: invalid argument" in text) == (4, True), text
