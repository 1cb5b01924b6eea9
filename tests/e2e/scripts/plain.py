"""`python plain.py`: runs scripts as torchrun would, with sums in trainmover's order, and nothing
else of it. One that has imported torch once forks the ranks of each.

The imports above `main` are as much as scripts import, once for all.

stdin   a JSON object a line: {"script", "argv", "ranks", "port", "comm"}
stdout  for each, when it is over: {"code", "rows": [[rank, step, values]], "digests", "printed"}
"""

import json
import os
import runpy
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch._dynamo
import torch.distributed.pipelining  # noqa: F401
import torchdata.stateful_dataloader  # noqa: F401
from torch import Tensor

from trainmover.comm import groups, hook_torch
from trainmover.worker import api


class Recorded(api.Alone):
    """A job of its own that remembers what each step reported."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: dict[int, dict[str, float]] = {}
        self.values: dict[str, float] = {}

    def run_step(self, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        if self.in_step:
            return super().run_step(function, args, kwargs)
        self.values, made = {}, self.steps
        try:
            result = super().run_step(function, args, kwargs)
        except Exception:
            if self.steps > made:
                self.rows[self.steps] = self.values
            raise
        if not self.values and isinstance(result, Tensor) and result.numel() == 1:
            self.values = {"loss": float(result)}
        self.rows[self.steps] = self.values
        return result

    def report(self, values: dict[str, float | Tensor]) -> None:
        self.values |= {name: api.number(name, value) for name, value in values.items()}


def main() -> None:
    for line in sys.stdin:
        with tempfile.TemporaryDirectory(prefix="tm-plain-") as folder:
            print(json.dumps(run(json.loads(line), Path(folder))), flush=True)


def run(order: dict[str, Any], folder: Path) -> dict[str, Any]:
    children = [fork(order, folder, rank) for rank in range(order["ranks"])]
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    told = [json.loads(text) for text in map(Path.read_text, sorted(folder.glob("*.json")))]
    return {
        "code": max(codes, key=abs),
        "rows": [[one["rank"], int(step), v] for one in told for step, v in one["rows"].items()],
        "digests": {one["rank"]: one["digest"] for one in told},
        "printed": (folder / "0.out").read_text().splitlines(),
    }


def fork(order: dict[str, Any], folder: Path, rank: int) -> int:
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        output = os.open(folder / f"{rank}.out", os.O_WRONLY | os.O_CREAT)
        os.dup2(output, 1)
        os.environ |= {
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            "WORLD_SIZE": str(order["ranks"]),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(order["port"]),
            "TMPDIR": str(folder),  # It ends without its clean-up.
        }
        be(order, folder / f"{rank}.json", rank)
        code = 0
    except BaseException:  # noqa: BLE001  The outermost frame: the exit status says it.
        traceback.print_exc()
    sys.stdout.flush()
    os._exit(code)


def be(order: dict[str, Any], result: Path, rank: int) -> None:
    """This rank of the script."""
    groups.choose(order["comm"])
    hook_torch(groups)
    api.Alone = Recorded  # type: ignore[misc]
    runtime: list[Recorded] = []
    api.on_attach(lambda: runtime.append(api.attach()._runtime))  # type: ignore[arg-type]
    sys.argv = [order["script"], *order["argv"]]
    sys.path.insert(0, str(Path(order["script"]).parent))
    runpy.run_path(order["script"], run_name="__main__")
    [job] = runtime
    digest = job.tracked.digest()
    result.write_text(json.dumps({"rank": rank, "rows": job.rows, "digest": digest}))


if __name__ == "__main__":
    main()
