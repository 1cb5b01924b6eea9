"""The controller of a run dies, is told to stop, or is started a second time."""

import re
import signal
from pathlib import Path

import psutil
import pytest
from host_tools import alive, until, words_of
from runs_of_trainmover import Running, events, nothing_left, until_said

from trainmover.cli.client import Client
from trainmover.cli.main import main
from trainmover.errors import UserError
from trainmover.launch.controller.process import DEATHS_MAX
from trainmover.launch.runs import find_run
from trainmover.server.checkpoints.folder import CheckpointFolder

pytestmark = [pytest.mark.usefixtures("own_home"), pytest.mark.turns(8)]


def controller(running: Running) -> psutil.Process:
    """The one that lives."""
    children = psutil.Process(running.process.pid).children()
    (found,) = [child for child in children if "controller" in words_of(child)]
    return found


def another(running: Running, dead: psutil.Process) -> bool:
    """Whether one has taken its place and answers."""
    return not alive(dead.pid) and bool(events())


def kill_controller(running: Running) -> None:
    dead = controller(running)
    dead.kill()
    until(lambda: another(running, dead), "another controller answers")
    running.family.append(controller(running).pid)


def test_a_run_survives_its_controller_and_is_found_where_it_was(
    start: type[Running], own_home: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "checkpoints"
    running = start("--checkpoint", str(folder), "--tls")
    running.until_warm()
    run, known = find_run(), Client(find_run()).events()
    assert run.api_url.startswith("https://")
    kill_controller(running)
    assert find_run() == run
    assert Client(run).events()[: len(known)] == known
    with pytest.raises(UserError, match="Another run writes"):
        CheckpointFolder.take(folder)
    until_said("3 of 3 machines are back")
    assert Client(run).status()["controller"]["restarts"] == 1
    assert main(["move", "m2"]) == 0
    running.finish.touch()
    code, out, err = running.ended()
    assert code == 0
    assert sorted(out.splitlines()) == ["bye", "bye", "hello from rank 0", "hello from rank 1"]
    assert len(re.findall("the controller was restarted; 3 of 3", err)) == 1
    assert len(re.findall("trainmover .* run ", err)) == 1
    assert nothing_left(running, own_home)


def test_a_machine_that_dies_with_the_controller_is_replaced_by_the_next(
    start: type[Running], own_home: Path
) -> None:
    running = start()
    running.until_warm()
    (agent,) = [
        child
        for child in psutil.Process(running.process.pid).children()
        if {"trainmover.agent", "m2"} <= words_of(child)
    ]
    dead = controller(running)
    dead.suspend()
    agent.kill()
    dead.kill()
    until_said("m3 takes rank 1")
    until_said("downtime 50 ms")
    running.finish.touch()
    assert running.ended()[0] == 0
    assert nothing_left(running, own_home)


def test_a_controller_that_dies_again_and_again_ends_the_job(
    start: type[Running], own_home: Path
) -> None:
    running = start()
    running.until_warm()
    for left in reversed(range(DEATHS_MAX + 1)):
        dead = controller(running)
        dead.kill()
        until(lambda dead=dead: not alive(dead.pid), "it has died")
        if left:
            until(lambda dead=dead: controller_pid(running) not in (0, dead.pid), "the next")
    code, _out, err = running.ended()
    assert code == 1
    assert f"ended more than {DEATHS_MAX} times within 60 s (signal 9)" in err
    assert nothing_left(running, own_home)


def controller_pid(running: Running) -> int:
    try:
        return controller(running).pid
    except (ValueError, psutil.Error):
        return 0


@pytest.mark.parametrize("to_all", [True, False])
def test_a_signal_to_the_controller_stops_the_job_in_order(
    start: type[Running], own_home: Path, to_all: bool
) -> None:
    """Told to both, as a batch system does, it is one wish and not two."""
    running = start()
    running.until_warm()
    controller(running).send_signal(signal.SIGTERM)
    if to_all:
        running.process.send_signal(signal.SIGTERM)
    assert running.ended()[0] == 143
    assert nothing_left(running, own_home)


def test_a_signal_while_no_controller_lives_is_not_lost(
    start: type[Running], own_home: Path
) -> None:
    running = start()
    running.until_warm()
    controller(running).kill()
    running.process.send_signal(signal.SIGINT)
    code, _, err = running.ended()
    assert code == 130
    assert "stopped by SIGINT" in err
    assert nothing_left(running, own_home)


def test_signals_end_a_run_whose_controller_does_not_answer(
    start: type[Running], own_home: Path
) -> None:
    running = start()
    running.until_warm()
    controller(running).suspend()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # Equal ones could become one.
        running.process.send_signal(number)
    assert running.ended()[0] in (130, 143, 129)
    assert nothing_left(running, own_home)


def test_a_second_controller_is_refused(
    start: type[Running], capsys: pytest.CaptureFixture[str]
) -> None:
    running = start()
    running.until_warm()
    assert main(["controller", "--run-dir", find_run().directory]) == 2
    assert f"process {controller(running).pid}" in capsys.readouterr().err
    running.finish.touch()
    assert running.ended()[0] == 0


def test_what_is_no_run_cannot_be_controlled(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["controller", "--run-dir", str(tmp_path)]) == 2
    assert "is not the directory of a run" in capsys.readouterr().err
