"""The commands that change a live run, and who else may ask: tokens, codes, other hosts."""

import json
import ssl
from pathlib import Path

import httpx
import pytest
from runs_of_trainmover import Running, events, nothing_left, until_said

from trainmover.cli.main import main
from trainmover.launch.runs import find_run
from trainmover.server.http.endpoints import V1


def asked(command: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, dict[str, object]]:
    capsys.readouterr()
    code = main([*command.split(), "--json"])
    return code, json.loads(capsys.readouterr().out)


def test_machines_are_cordoned_and_drained_and_others_may_look(
    start: type[Running], own_home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    running = start("--tls", "--api-bind", "0.0.0.0:0")
    running.until_warm()
    code, said = asked("cordon m3 --reason fan", capsys)
    assert (code, said["ok"]) == (0, True)
    code, said = asked("drain m1 --reason disk", capsys)
    assert (code, said["ok"]) == (1, False)
    assert "m3 is cordoned (fan)" in str(said["text"])
    code, said = asked("health m3", capsys)
    assert (code, said["ok"]) == (0, True)
    assert "m3 is fit: its memory" in str(said["text"])
    assert "its network" in str(said["text"])
    assert "m1 has ranks" in str(asked("health m1", capsys)[1]["text"])
    code, several = asked("uncordon m3 m3", capsys)
    assert (code, [one["ok"] for one in several]) == (1, [True, False])  # type: ignore[index]
    code, status = asked("status", capsys)
    cordoned = {one["id"]: one["cordoned"] for one in status["machines"]}  # type: ignore[attr-defined]
    assert cordoned["m1"]["reason"] == "disk"
    assert cordoned["m3"] is None
    until_said("asks: drain m1 (disk)")
    _others_may_look(capsys)
    assert main(["stop"]) == 0
    assert running.ended()[0] == 143
    assert nothing_left(running, own_home)


def _others_may_look(capsys: pytest.CaptureFixture[str]) -> None:
    run = find_run()
    assert run.tls is not None
    context = ssl.create_default_context(cafile=run.tls.ca)
    viewer = str(asked("token --viewer", capsys)[1]["token"])
    operator = str(asked("token", capsys)[1]["token"])
    assert viewer != operator
    assert operator == Path(run.token_file).read_text()
    address = asked("dashboard", capsys)[1]["url"]
    url, _, code = str(address).partition("/#code=")
    with httpx.Client(base_url=url, verify=context, trust_env=False) as client:
        assert client.get(f"{V1}/status").status_code == 401
        assert "<noscript>" in client.get("/").text
        shown = {"Authorization": f"Bearer {viewer}"}
        assert client.get(f"{V1}/status", headers=shown).json()["run"] == run.run_id
        assert client.post(f"{V1}/stop", headers=shown).status_code == 403
        begun = client.post(f"{V1}/session", json={"code": code})
        assert begun.json()["role"] == "operator"
        assert "set-cookie" not in begun.headers
        client.headers["Authorization"] = f"Bearer {begun.json()['session']}"
        assert client.get(f"{V1}/status").status_code == 200
        assert operator not in events()


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        ("--api-bind 0.0.0.0:0", "without --tls they could read the token"),
        ("--api-bind 10.0.0.5 --tls", "is no address"),
        ("--api-bind :80 --tls", "is no address"),
        ("--api-bind a:99999 --tls", "is no address"),
        ("--api-bind 127.0.0.1:0 --api-port 7 --tls", "both say where"),
        ("--api-bind 192.0.2.1:0 --tls", "cannot listen on 192.0.2.1:0"),
        ("--api-bind no.such.host.invalid:0 --tls", "cannot listen on"),
    ],
)
def test_an_api_for_other_hosts_needs_tls_and_an_address(
    flags: str, why: str, own_home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "train.py"
    script.touch()
    assert main(["run", "--machines", "1", *flags.split(), str(script)]) == 2
    assert why in capsys.readouterr().err
    assert list((own_home / "runs").glob("*")) == []
