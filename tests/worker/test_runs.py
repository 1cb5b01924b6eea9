"""Shadow runs, one after the other in one process, and what is said of those that fail."""

import copyreg
import os
import re
import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from compiled_code import packed

from trainmover.comm import Groups
from trainmover.ids import Rank, Slot
from trainmover.protocol import messages as m
from trainmover.protocol.framing import FrameReader
from trainmover.sandbox.binding import binding_of
from trainmover.sandbox.record import Record
from trainmover.state.transfer import StateServer
from trainmover.worker import runs as runs_module
from trainmover.worker.control import Control
from trainmover.worker.join.shadow import Shadow
from trainmover.worker.keep import script_graph
from trainmover.worker.keep.snapshots import Snapshots
from trainmover.worker.link import ControlLink
from trainmover.worker.runs import Runs
from trainmover.worker.station import Station
from trainmover.worker.watch import patience

TRAIN = """
import torch, trainmover as tm
job = tm.attach()
job.track(model=torch.nn.Linear(2, 2))
@job.step
def step(number):
    job.report(loss=float(number))
for number in job.batches(range(100)):
    step(number)
"""
Warmed = Callable[..., list[m.WorkerFact]]


@pytest.fixture(autouse=True)
def own_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    own = Groups()
    for module in (
        "runs", "program", "control", "step.gate", "join.shadow", "join.repeat", "join.takeover",
        "join.way.journey", "member", "step.boundary", "watch.patience", "keep.first_steps",
        "step.updates",
    ):  # fmt: skip
        monkeypatch.setattr(f"trainmover.worker.{module}.groups", own)
    for name in ("RANK", "ROLE_RANK", "GROUP_RANK"):
        monkeypatch.setenv(name, "0")


@pytest.fixture
def warmed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Warmed]:
    """Warms up so many times, or for these slots, with the text of a script; gives what the worker
    has said."""
    ours, theirs = socket.socketpair()
    ours.settimeout(30)
    path = tmp_path / "train.py"
    spec = m.JobSpec(run_id="r", argv=[str(path)], machines=2)
    token, stores = b"t" * 16, None
    server = StateServer(token)
    link = ControlLink(os.dup(theirs.fileno()))
    unused: Any = stores
    station = Station(
        spec=spec,
        token=token,
        local_rank=0,
        link=link,
        server=server,
        stores=unused,
        torchs=unused,
        snapshots=Snapshots(token, server, link.say),
    )
    path.write_text(TRAIN)
    monkeypatch.setattr(script_graph, "is_own_file", lambda one: one == str(path))
    binding = binding_of(spec.argv, module=False, world_size=2, nproc=1)
    record = Record(binding, 1, 3, "trace", "signature")

    def warmed(
        text: str, times: int = 1, slots: Sequence[Slot] = (), **recorded: Any
    ) -> list[m.WorkerFact]:
        path.write_text(text)
        found = replace(record, **recorded)
        monkeypatch.setattr(runs_module, "first_steps", lambda *_: found)
        runs = Runs(station, Control(station))
        for slot in slots or [Slot(1)] * times:
            runs._warm_up(m.WarmUp(slot=slot, records={Rank(slot): []}))
        theirs.shutdown(socket.SHUT_WR)
        data = b"".join(iter(lambda: ours.recv(1 << 16), b""))
        return [m.decode_worker_fact(payload) for payload in FrameReader().feed(data)]

    yield warmed
    server.close()
    ours.close(), theirs.close()


@pytest.mark.turns(8)
def test_a_warm_up_says_nothing_but_that_it_is_warm(warmed: Warmed) -> None:
    said = warmed(TRAIN, times=2)
    assert [(type(fact), fact.shadow_steps) for fact in said] == [(m.Warm, 3)] * 2


@pytest.mark.turns(8)
def test_each_warm_up_takes_what_was_compiled_since(
    warmed: Warmed, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    monkeypatch.setattr(runs_module, "compiled_elsewhere", lambda rank, *_: asked.append(rank))
    warmed(TRAIN, times=2)
    assert asked == [1, 1]


def test_compiled_code_that_cannot_be_loaded_costs_nothing_but_a_warning(
    warmed: Warmed, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "cache"))
    data = packed("inductor", "fabcdef", b"no pickle")
    monkeypatch.setattr(runs_module, "compiled_elsewhere", lambda *_: data)
    warned, warm = warmed(TRAIN)
    assert isinstance(warm, m.Warm)
    assert warned.text.startswith("What another rank has compiled cannot be loaded (")
    assert warned.text.endswith("This machine compiles for itself.")


def test_compiled_code_of_others_is_left_and_warned_of(
    warmed: Warmed, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = tmp_path / "first-steps" / "code"
    path.parent.mkdir(mode=0o777)
    path.parent.chmod(0o777)
    path.write_bytes(b"code")
    places: m.Records = {Rank(1): [m.Stored(Rank(1), [], compiled=str(path))]}
    real = runs_module.compiled_elsewhere
    monkeypatch.setattr(
        runs_module, "compiled_elsewhere", lambda rank, _, token: real(rank, places, token)
    )
    warned, warm = warmed(TRAIN)
    assert isinstance(warm, m.Warm)
    assert f"{path.parent} can be written by other users (mode 0777)" in warned.text


@pytest.mark.turns(4)
def test_memory_that_a_run_takes_is_told(warmed: Warmed) -> None:
    # Mapped anew: a heap in which earlier tests have left room would not grow.
    [fact] = warmed("import mmap; held = mmap.mmap(-1, 2**26, 2); held.write(bytes(2**26))" + TRAIN)
    assert isinstance(fact, m.Warm)
    assert fact.held_bytes > 2**25


def test_a_machine_with_too_little_memory_does_not_begin(warmed: Warmed) -> None:
    [fact] = warmed("raise AssertionError('it began')", held_bytes=1 << 60)
    assert isinstance(fact, m.SandboxFailed)
    assert re.match(r"the role needs 10737418\d\d\.\d GiB", fact.reason)


DEAF = """
class Deaf:
    def state_dict(self): return {"n": 1}
    def load_state_dict(self, state): raise ValueError("not today")
job.track(deaf=Deaf())
@job.step"""


def test_state_that_cannot_be_put_back_is_named_before_anybody_depends_on_it(
    warmed: Warmed,
) -> None:
    [fact] = warmed(TRAIN.replace("@job.step", DEAF))
    assert isinstance(fact, m.SandboxFailed)
    assert "`deaf` does not take back the state that it gave: not today" in fact.reason


ONCE = """\
from copyreg import dispatch_table as known
assert "tm" not in known, "twice"
known["tm"] = 1
"""


def test_a_script_that_runs_only_once_says_so_the_second_time(warmed: Warmed) -> None:
    try:
        warm, failed = warmed(ONCE + TRAIN, times=2)
    finally:
        del copyreg.dispatch_table["tm"]  # type: ignore[arg-type]
    assert isinstance(warm, m.Warm)
    assert isinstance(failed, m.SandboxFailed)
    assert failed.again
    assert "cannot run twice in one process" in failed.reason
    assert "train.py line 2: AssertionError: twice" in failed.reason


def test_a_process_whose_library_knows_another_rank_is_of_no_use_for_this_one(
    warmed: Warmed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "site-packages"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    (folder / "tm_ranked.py").write_text("import os; RANK = os.environ['RANK']")
    try:
        slots = [Slot(1), Slot(1), Slot(0)]
        first, second, third = warmed("import tm_ranked\n" + TRAIN, slots=slots)
    finally:
        sys.modules.pop("tm_ranked", None)
    assert isinstance(first, m.Warm)
    assert isinstance(second, m.Warm)
    assert isinstance(third, m.SandboxFailed)
    assert third.again
    assert (
        "`tm_ranked` has read which rank it is as it was imported, and that was 1" in third.reason
    )


def test_a_script_that_fails_at_once_is_not_said_to_run_only_once(warmed: Warmed) -> None:
    [failed] = warmed("raise ValueError('no')")
    assert failed == m.SandboxFailed(
        rank=Rank(1),
        reason="the script raised in the sandbox at train.py line 1: ValueError: no",
    )


def test_what_a_run_leaves_behind_is_told_once(warmed: Warmed) -> None:
    left = Path(os.environ.get("TMPDIR", "/tmp")) / f"tm-left-{os.getpid()}"
    text = f"import copyreg; copyreg.dispatch_table['tm'] = open('{left}', 'w')\n" + TRAIN
    try:
        said = warmed(text, times=2)
    finally:
        copyreg.dispatch_table.pop("tm").close()  # type: ignore[call-overload]
        left.unlink()
    assert [type(fact) for fact in said] == [m.Warned, m.Warm, m.Warm]


def test_a_run_that_stands_still_is_given_up_with_its_place(
    warmed: Warmed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patience, "STILL_S", 0.3)
    monkeypatch.setattr(patience, "POLL_S", 0.05)
    # Other tests' threads live on here, and are busy.
    monkeypatch.setattr(patience._Work, "is_more_than", lambda *_: False)
    [failed] = warmed("import threading\nwhile True: threading.Event().wait(0.05)")
    assert isinstance(failed, m.SandboxFailed)
    assert re.search(r"has stood still for \d+ s at train.py line 2: it waits", failed.reason)


def test_a_run_that_waits_for_another_worker_is_left_to_the_patience_of_that(
    warmed: Warmed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patience, "STILL_S", 0.2)
    monkeypatch.setattr(patience, "POLL_S", 0.05)
    monkeypatch.setattr(Shadow, "waits_for_others", True)
    [fact] = warmed("import threading; threading.Event().wait(0.6)" + TRAIN)
    assert isinstance(fact, m.Warm)


def test_a_run_that_computes_is_not_given_up(
    warmed: Warmed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patience, "STILL_S", 0.2)
    monkeypatch.setattr(patience, "POLL_S", 0.05)
    busy = "import time; until = time.process_time() + 0.5\nwhile time.process_time() < until: pass"
    [fact] = warmed(busy + TRAIN)
    assert isinstance(fact, m.Warm)


DESERT = "    from trainmover.worker import runs; runs.groups.desert('')\n"
DESERTED = TRAIN.replace("    job.report", f"{DESERT}    job.report")
"""As if another worker of the machine had left in the middle of a step."""


@pytest.mark.parametrize("then", ["", "    raise ValueError('of garbage')\n"])
def test_a_run_that_others_have_left_leaves_it_to_them_to_say_why(
    warmed: Warmed, monkeypatch: pytest.MonkeyPatch, then: str
) -> None:
    monkeypatch.setattr(Control, "told_within", lambda *_: True)
    text = DESERTED.replace("    job.report", f"{then}    job.report")
    assert warmed(text) == []


def test_a_run_that_others_have_left_is_not_forgotten(
    warmed: Warmed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs_module, "REASON_GRACE_S", 0.05)
    [failed] = warmed(DESERTED)
    assert isinstance(failed, m.SandboxFailed)
    assert "has left the sandbox without saying why" in failed.reason


AGAIN = """
import ctypes, threading, time, torch, trainmover as tm
from types import SimpleNamespace
job = tm.attach()
model = torch.nn.Linear(2, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
job.track(model=model, optimizer=optimizer)
counter = ctypes.c_int(0)
over = threading.Event()
def beat():
    while not over.wait(0.001):
        records[99].count += 1
kept, dropout = SimpleNamespace(seen=[], count=0), torch.nn.Dropout()
records = [SimpleNamespace(count=0, seen=[]) for _ in range(100)]
@job.step
def step(number):
    scale = 1.0
    HABIT
    loss = (scale * model(torch.rand(3, 2))).square().mean()
    loss.backward()
    job.report(loss=loss)
    optimizer.step()
    optimizer.zero_grad()
    kept.__dict__.pop("mask", None), model.weight.__dict__.pop("kept", None)
    dropout.train()
try:
    for number in job.batches(range(100)):
        step(number)
finally:
    over.set()
"""


@pytest.mark.parametrize(
    "habit",
    [
        "pass",
        "kept.count += 1",
        "kept.seen.append(number); scale += len(kept.seen)",
        "scale = torch.rand(1).item()",
        "model.bias.data.mul_(0.9)",
        "kept.mask = torch.rand(2)",
        "model.train(number % 2 == 0)",
        "if not hasattr(kept, 'mask'): kept.mask = torch.rand(2)",
        "if not hasattr(kept, 'mask'): kept.mask = 1; scale = 0.5",
        "if not hasattr(model.weight, 'kept'): model.weight.kept = torch.rand(2)",
        "records[number].count += 1",
        "records[number].seen.append(number)",
        "scale = 0.5 if dropout.training else 1.0; dropout.eval()",
        "raise_at_first = 1 / (number + 1)",
        "number or threading.Thread(target=beat, daemon=True).start(); time.sleep(0.02)",
    ],
)
def test_a_step_that_can_be_run_again_warms(warmed: Warmed, habit: str) -> None:
    [fact] = warmed(AGAIN.replace("HABIT", habit))
    assert isinstance(fact, m.Warm), fact


@pytest.mark.parametrize(
    ("habit", "why"),
    [
        ("counter.value += 1; scale = 1.0 / counter.value", "gradients of `weight` differ"),
        ("counter.value % 2 or torch.rand(1); counter.value += 1", "the random numbers"),
    ],
)
def test_a_step_that_cannot_be_run_again_is_named(warmed: Warmed, habit: str, why: str) -> None:
    [fact] = warmed(AGAIN.replace("HABIT", habit))
    assert isinstance(fact, m.SandboxFailed)
    assert re.match(r"step \(train.py line \d+\) would give other numbers on rank 1", fact.reason)
    assert why in fact.reason
