# SPDX-License-Identifier: Apache-2.0
"""What NCCL under trainmover comes to on one GPU, part by part; each takes eight minutes at most.

    python -m bench.gpu                  all parts, one after the other
    python -m bench.gpu --part A1        2, 3 and 4 ranks meet; how long a small call takes
    python -m bench.gpu --part A2        every call is right; what a call costs its caller
    python -m bench.gpu --part A3        a step with and without the wait for the device
    python -m bench.gpu --part B1        SIGKILL and SIGSTOP in a call: until it ends
    python -m bench.gpu --part B2        a coming epoch prepared while training goes on
    python -m bench.gpu --part B3        200 prepared and given up under load
    python -m bench.gpu --part C1        DDP, compiled: moved and killed, bit for bit
    python -m bench.gpu --part C2        FSDP2 and HSDP
    python -m bench.gpu --part C3        downtimes, beside torchrun on the same GPU
    python -m bench.gpu --part D         digests, copies and moves over TCP by size
    python -m bench.gpu --part D2        state from device to device by size, as in a planned move

All ranks share the GPU: NCCL takes them for hosts, and the GPU gives each its slices of time. What
is measured so says nothing of bandwidth between GPUs. With --stand-in everything runs over the
stand-in, on the CPU, and quickly: to see that the bench works, never a result.
"""

import os
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from bench import result

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "gpu")]
import fake_nccl  # noqa: E402
import one_gpu  # noqa: E402  the tests' settings, found by the line above

from bench.on_gpu import calls, epochs, jobs, state  # noqa: E402  they use the two above
from bench.on_gpu.team import Found, Plan  # noqa: E402
from trainmover.sandbox.process.gpus import gpus_of_host  # noqa: E402

SMOKE_PART = "A1"
SHARED = "**All ranks share one GPU (NCCL_HOSTID): nothing here is a bandwidth between GPUs.**"
PARTS: dict[str, Callable[[Plan], Found]] = {
    "A1": calls.meeting,
    "A2": calls.calling,
    "A3": calls.waiting,
    "B1": epochs.ending,
    "B2": epochs.preparing,
    "B3": epochs.giving_up,
    "C1": jobs.equal("replicated or compiled"),
    "C2": jobs.equal("fsdp2 or hsdp"),
    "C3": jobs.downtimes,
    "D": state.at_rest,
    "D2": state.direct,
}


def main() -> int:
    """Exit status 0 if every claim holds."""
    parser = result.parser("gpu", __doc__, quick="few trials; no claim to be stable")
    parser.add_argument("--part", choices=list(PARTS), help="all, if it is not given")
    parser.add_argument("--stand-in", action="store_true", help="on the CPU: no result")
    flags = parser.parse_args()
    has_gpu, skipped = Path("/dev/nvidia0").exists(), ""
    if flags.smoke:
        flags.part = flags.part or SMOKE_PART
        if not has_gpu:
            flags.stand_in = True
            skipped = f"there is no GPU here. Part {flags.part} ran over the stand-in for NCCL."
    device = "cpu" if flags.stand_in else "cuda"
    if device == "cuda" and not has_gpu:
        parser.error("there is no GPU here; --stand-in shows that the bench works")
    plan = Plan(device, quick=flags.quick or flags.stand_in)
    chosen = [flags.part] if flags.part else list(PARTS)
    with environment(plan):
        done = [run(name, plan) for name in chosen]
    claims = [claim for found in done for claim in found.claims]
    told = [line for found in done for line in [*found.table, ""]]
    name = f"gpu-{flags.part}" if flags.part else "gpu"
    return result.say(name, claims, told, as_json=flags.json, skipped=skipped)


def environment(plan: Plan) -> AbstractContextManager[None]:
    """What the processes of all parts find."""
    if plan.stands_in:
        return fake_nccl.stands_in()
    os.environ.update(one_gpu.SETTINGS, ONE_GPU="1")
    return nullcontext()


def run(name: str, plan: Plan) -> Found:
    """One part, and its file."""
    print(f"part {name} ...", file=sys.stderr, flush=True)
    found = PARTS[name](plan)
    first = "Over the stand-in: no result." if plan.stands_in else f"{SHARED} {gpus_of_host()}."
    where = result.setting([os.getloadavg()[0]])
    table = [first, "", *found.table]
    path = result.write(f"gpu-{name}", found.claims, table, where, found.raw, quick=plan.quick)
    found.table = [f"## Part {name}", first, *found.table, f"written to {path}"]
    return found


if __name__ == "__main__":
    sys.exit(main())
