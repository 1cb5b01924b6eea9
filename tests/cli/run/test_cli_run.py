"""`trainmover run` as a process of its own, driven by the other commands."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from host_tools import alive, environment, until
from runs_of_trainmover import Running, events, nothing_left, until_said

from trainmover.cli.client import Client
from trainmover.cli.main import main
from trainmover.launch.runs import find_run

pytestmark = [pytest.mark.usefixtures("own_home"), pytest.mark.turns(8)]


def following() -> "subprocess.Popen[str]":
    """`trainmover events --follow`, once it has begun to."""
    follower = subprocess.Popen(
        [sys.executable, "-m", "trainmover", "events", "--follow"],
        stdout=subprocess.PIPE, text=True, env=environment(),
    )  # fmt: skip
    assert follower.stdout is not None
    assert follower.stdout.readline()
    return follower


def test_a_run_is_shown_moved_killed_and_followed(
    start: type[Running], own_home: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    running = start("--journal", str(tmp_path / "j.sqlite"))
    running.until_warm()
    assert main(["status"]) == 0
    shown = capsys.readouterr().out
    assert "MACHINE  STATE   RANKS" in shown
    assert main(["move", "m2", "--reason", "fan 3"]) == 0
    assert "m2 -> m3 after step 5: pause 50 ms" in capsys.readouterr().out
    until_said("m2 -> m3: moving rank 1 (fan 3)")
    assert main(["move", "m9", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["ok"] is False
    assert main(["kill", "m1"]) == 0
    until_said("downtime 50 ms")
    assert main(["status", "--json"]) == 0
    status = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert [machine["ranks"] for machine in status["machines"]] == [[0], [1]]
    follower = following()
    running.finish.touch()
    followed, _ = follower.communicate(timeout=60)
    assert follower.returncode == 0
    assert "the script of rank 0 ended after step 15" in followed
    code, out, err = running.ended()
    assert code == 0
    assert sorted(out.splitlines()) == ["bye", "bye", "hello from rank 0", "hello from rank 1"]
    assert "m1 was lost: its agent has ended -> m2 takes rank 0" in err
    assert nothing_left(running, own_home)
    assert main(["events", "--journal", str(tmp_path / "j.sqlite"), "-n", "1"]) == 0
    assert "ended (0)" in capsys.readouterr().out


def test_a_run_with_a_directory_of_its_own_is_found_and_no_other_is_hit(
    start: type[Running], own_home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_dir = tmp_path / "private"
    running = start("--run-dir", str(run_dir))
    running.until_warm()
    assert main(["status"]) == 0
    assert "run private" in capsys.readouterr().out
    assert main(["kill", "m1", "--run-id", "another"]) == 2
    assert "Run another is not alive" in capsys.readouterr().err
    assert main(["move", "m2", "--run-id", "private"]) == 0
    running.finish.touch()
    assert running.ended()[0] == 0
    assert nothing_left(running, own_home)
    assert not run_dir.exists()


def test_a_job_without_standbys_gets_one_and_shows_what_it_is_ready_for(
    start: type[Running], own_home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    running = start("--standbys", "0")
    until_said("m2 has rank 1")
    assert main(["standbys"]) == 0
    assert "standbys 0 of 0 ready: the next loss ends the job" in capsys.readouterr().out
    assert main(["add"]) == 0
    assert capsys.readouterr().out.startswith("m3 joined as a standby")
    running.until_warm()
    assert main(["standbys"]) == 0
    assert "m3       0-1    holds 0  equal" in capsys.readouterr().out
    assert main(["standbys", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [role["ranks"] for role in told["roles"]] == [[0, 1]]
    assert [(row["machine"], row["ranks"]) for row in told["standbys"]] == [("m3", [0, 1])]
    assert main(["move", "m2"]) == 0
    assert "m2 -> m3 after step 5" in capsys.readouterr().out
    running.finish.touch()
    assert running.ended()[0] == 0
    until(lambda: nothing_left(running, own_home), "the added machine ends with its run")


def test_a_job_that_may_wait_is_continued_by_a_machine_that_is_added(
    start: type[Running], capsys: pytest.CaptureFixture[str]
) -> None:
    running = start("--standbys", "0", "--wait-for-machine", "600")
    until_said("m2 has rank 1")
    until(lambda: Client(find_run()).status()["step"] == 5, "it has committed")
    assert main(["kill", "m2"]) == 0
    until_said("waits for a machine, at most 600 s")
    assert main(["status"]) == 0
    shown = capsys.readouterr().out
    assert "  waiting for a machine  " in shown
    assert "#1 recovery m2 -> waits for a machine  open" in shown
    assert "needs 1 machine for rank 1: without, the job ends in " in shown
    assert main(["add", "--machine", "spare", "--json"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["machine"] == "spare"
    until_said("m2 -> spare after step 5: downtime 50 ms")
    running.finish.touch()
    assert running.ended()[0] == 0


def test_a_job_that_waits_in_vain_ends_with_the_reason(start: type[Running]) -> None:
    running = start("--standbys", "0", "--wait-for-machine", "1")
    until_said("m2 has rank 1")
    until(lambda: Client(find_run()).status()["step"] == 5, "it has committed")
    assert main(["kill", "m2"]) == 0
    code, _, err = running.ended()
    assert code == 1
    assert "0 standbys are left, and none has come in 1 s." in err


@pytest.mark.parametrize("name", ["m1", "../m9", ""])
def test_a_machine_that_cannot_be_added_is_refused(
    start: type[Running], name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    running = start("--standbys", "0", "--run-id", "mine")
    until_said("m2 has rank 1")
    flags = ["--machine", name] if name else ["--run-id", "other"]
    assert main(["add", *flags]) == 2
    assert "Nothing was started." in capsys.readouterr().err or not name
    assert len(Client(find_run()).status()["machines"]) == 2
    running.finish.touch()
    assert running.ended()[0] == 0


def test_a_run_is_stopped_by_command_and_is_over_then(
    start: type[Running], own_home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    running = start()
    running.until_warm()
    assert main(["stop", "--reason", "the hall gets hot"]) == 0
    assert capsys.readouterr().out.endswith("has ended.\n")
    assert main(["status"]) == 2
    code, _, err = running.ended()
    assert code == 143
    assert "trainmover: asked for over the API: the hall gets hot" in err
    assert nothing_left(running, own_home)


def test_where_machines_come_from_other_hosts_the_line_to_copy_is_printed(
    start: type[Running], capsys: pytest.CaptureFixture[str]
) -> None:
    running = start("--bind", "127.0.0.1", "--nproc-per-node", "2")
    until_said("waits for 3 machines.")
    assert main(["status"]) == 0
    assert "gathering: 0 of 3 machines are there" in capsys.readouterr().out
    (line,) = [line for line in events().splitlines() if "trainmover agent" in line]
    run = find_run()
    expected = f"--controller {run.controller} --token-file {run.token_file} --nproc 2 --machine m1"
    assert line.strip() == f"trainmover agent {expected}"
    running.process.send_signal(signal.SIGTERM)
    assert running.ended()[0] == 143


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
def test_a_signal_ends_it_in_order_and_leaves_nothing(
    start: type[Running], own_home: Path, number: signal.Signals, code: int
) -> None:
    running = start()
    running.until_warm()
    running.process.send_signal(number)
    assert running.ended()[0] == code
    assert nothing_left(running, own_home)


def test_a_run_that_is_killed_leaves_no_process(start: type[Running], own_home: Path) -> None:
    running = start()
    running.until_warm()
    running.process.kill()
    running.process.communicate()
    until(lambda: not any(alive(pid) for pid in running.family), "all processes end")
    assert main(["status"]) == 2
    assert nothing_left(running, own_home)


def test_a_signal_while_it_starts_ends_it_too(start: type[Running], own_home: Path) -> None:
    running = start()
    until(lambda: (own_home / "runs").is_dir() and any((own_home / "runs").iterdir()), "it starts")
    running.process.send_signal(signal.SIGINT)
    assert running.ended()[0] == 130
    assert list((own_home / "runs").iterdir()) == []


def test_json_is_one_object_a_line(start: type[Running]) -> None:
    running = start("--json")
    running.until_warm()
    running.finish.touch()
    code, out, err = running.ended()
    said = [json.loads(line) for line in out.splitlines()]
    assert (code, err) == (0, "")
    assert said[0]["what"] == "started"
    assert said[-1].items() >= {"what": "end", "code": 0, "text": ""}.items()
    assert 0 <= said[-1]["goodput"] <= 1
    assert {one["what"] for one in said} == {"started", "event", "output", "end"}


def test_lines_that_go_to_a_file_too_say_whose_they_are_as_torchrun_has_it(
    start: type[Running], tmp_path: Path
) -> None:
    logs = str(tmp_path / "logs")
    running = start("--tee", "3", "--log-dir", logs, "--role", "trainer", "--standbys", "0")
    until_said("m2 has rank 1")
    running.finish.touch()
    code, out, _ = running.ended()
    assert code == 0
    assert "[trainer0]:hello from rank 0" in out.splitlines()
    assert "[trainer1]:hello from rank 1" in out.splitlines()


def test_a_traceback_is_shown_once_and_the_status_is_1(start: type[Running]) -> None:
    code, _, err = start(behave="raise").ended()
    assert code == 1
    assert err.count("TB ValueError: planted") == 1
    assert "Traceback" not in err


def test_a_port_in_use_is_explained(start: type[Running]) -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as taken:
        code, _, err = start("--api-port", str(taken.getsockname()[1])).ended()
    assert code == 2
    assert "The API cannot listen on" in err
    assert len(err.splitlines()) == 3


def test_a_reader_that_goes_away_does_not_stop_the_job(start: type[Running]) -> None:
    running = start(behave="chatty")
    assert running.process.stdout is not None
    running.process.stdout.close()
    running.until_warm()
    running.finish.touch()
    assert running.process.wait(timeout=60) == 0
    assert running.process.stderr is not None
    assert "BrokenPipe" not in running.process.stderr.read()
    running.process.stderr.close()


def test_modules_are_quick_to_import() -> None:
    code = "import sys, trainmover.cli.main, trainmover.cli.watch.status, trainmover.agent.run;"
    code += "print('torch' in sys.modules)"
    reply = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment(), check=True
    )
    assert reply.stdout == "False\n"
    assert os.environ["TRAINMOVER_HOME"]
