"""What Prometheus scrapes: every measure, by its conventions, read by Prometheus' own tools."""

import asyncio
import json
import re
import shutil
import subprocess
from pathlib import Path

import httpx
import pytest
from http_jobs import commit, training
from http_plays import VIEWER, play, serving
from prometheus_client.parser import text_string_to_metric_families

from trainmover.launch.runs import Run, targets
from trainmover.server.http.metrics import Metrics
from trainmover.server.http.roles import viewer_token
from trainmover.server.run import Server

DEPLOY = Path(__file__).resolve().parents[3] / "deploy"
WANTED = {
    "trainmover_run_info", "trainmover_step", "trainmover_step_duration_seconds", "trainmover_loss",
    "trainmover_goodput_ratio", "trainmover_incidents", "trainmover_downtime_seconds",
    "trainmover_incident_phase_seconds", "trainmover_standbys", "trainmover_epoch",
    "trainmover_machine_ranks", "trainmover_heartbeat_age_seconds", "trainmover_phase",
    "trainmover_snapshot_age_seconds", "trainmover_snapshot_behind_steps",
    "trainmover_checkpoint_age_seconds", "trainmover_standbys_wanted",
    "trainmover_state_moved_bytes", "trainmover_controller_event_queue", "trainmover_unequal_steps",
    "trainmover_controller_loop_lag_seconds", "trainmover_controller_restarts",
    "trainmover_machines_away", "trainmover_machines_cordoned", "trainmover_journal_entries",
}  # fmt: skip


def _values(labels: dict[str, str]) -> list[str]:
    return [labels[name] for name in sorted(labels)]


def test_every_measure_is_there_with_its_value(tmp_path: Path) -> None:
    async def act(server: Server, client: httpx.AsyncClient) -> None:
        for step in range(1, 6):
            commit(server, step, first=step == 1)
        server.measures.cut_us = server.measures.checkpoint_us = server.now()
        await asyncio.sleep(0.002)
        reply = await client.get("/metrics", headers=VIEWER)
        assert reply.headers["content-type"].startswith("text/plain; version=0.0.4")
        found = {each.name: each for each in text_string_to_metric_families(reply.text)}
        assert found.keys() == WANTED
        samples = {(s.name, *_values(s.labels)): s.value for f in found.values() for s in f.samples}
        assert samples["trainmover_step",] == 5
        assert samples["trainmover_loss",] == 0.2
        assert samples["trainmover_epoch",] == 2
        assert samples["trainmover_step_duration_seconds_bucket", "0.05"] == 4
        assert samples["trainmover_step_duration_seconds_bucket", "0.025"] == 0
        assert samples["trainmover_incidents_total", "machine_lost", "recovery", "done"] == 1
        assert samples["trainmover_downtime_seconds_sum", "recovery"] == 0.061
        assert samples["trainmover_incident_phase_seconds_sum", "recovery", "drain"] == 0.011
        assert samples["trainmover_state_moved_bytes_total",] == 4_700_000
        assert samples["trainmover_standbys", "warm"] == 1
        assert samples["trainmover_standbys", "cordoned"] == 1
        assert samples["trainmover_standbys", "holding"] == 0
        assert samples["trainmover_machines_cordoned",] == 1
        assert samples["trainmover_machine_ranks", "m1"] == 1
        assert samples["trainmover_machine_ranks", "m5"] == 0
        assert samples["trainmover_phase", "running"] == 1

    play(tmp_path, act, training(4, 2))


def test_a_job_of_which_nothing_is_known_has_metrics_too(tmp_path: Path) -> None:
    async def act(server: Server, client: httpx.AsyncClient) -> None:
        text = (await client.get("/metrics")).text
        names = {each.name for each in text_string_to_metric_families(text)}
        assert names <= WANTED
        assert "trainmover_loss" not in names

    play(tmp_path, act)


def test_the_dashboard_and_the_alerts_ask_for_what_there_is() -> None:
    known = {
        f"{name}{end}" for name in WANTED for end in ("", "_total", "_bucket", "_sum", "_count")
    }
    panels = json.loads((DEPLOY / "grafana/trainmover.json").read_text())["panels"]
    texts = [target["expr"] for panel in panels for target in panel["targets"]]
    texts.append((DEPLOY / "prometheus/alerts.yml").read_text())
    asked = {name for text in texts for name in re.findall(r"trainmover_[a-z_]+", text)}
    assert asked - known == set()
    assert len(asked) > 15


def test_promtool_finds_nothing_to_say_against_them(tmp_path: Path) -> None:
    if (promtool := shutil.which("promtool")) is None:
        pytest.skip("promtool is not installed (Debian: apt install prometheus)")
    rules = subprocess.run(
        [promtool, "check", "rules", str(DEPLOY / "prometheus/alerts.yml")],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert rules.returncode == 0, rules.stdout + rules.stderr
    played = subprocess.run(
        [promtool, "test", "rules", str(Path(__file__).with_name("alerts_played.yml"))],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert played.returncode == 0, played.stdout + played.stderr

    async def act(server: Server, client: httpx.AsyncClient) -> None:
        commit(server, 1, first=True)
        text = Metrics(server).text()
        said = subprocess.run([promtool, "check", "metrics"], input=text, capture_output=True,
                              timeout=60, check=False)  # fmt: skip
        assert (said.returncode, said.stdout + said.stderr) == (0, b"")

    play(tmp_path, act, training(4, 2))


def run_at(url: str) -> Run:
    return Run(
        run_id="night", api_url=url, host="h", pid=1, started=1, directory="d", token_file="t",
        journal="j",
    )  # fmt: skip


def test_prometheus_scrapes_it(tmp_path: Path) -> None:
    if (prometheus := shutil.which("prometheus")) is None:
        pytest.skip("prometheus is not installed (Debian: apt install prometheus)")

    async def run() -> None:
        async with serving(tmp_path / "j.sqlite", training(4, 2)) as (server, url):
            commit(server, 7, first=True)
            (tmp_path / "token").write_bytes(viewer_token(b"0123456789abcdef-token"))
            config = (DEPLOY / "prometheus/prometheus.yml").read_text()
            (tmp_path / "prometheus.json").write_bytes(targets(run_at(url)))
            config = config.replace("/home/me/.cache/trainmover/runs/*", str(tmp_path))
            config = config.replace("viewer-token\n", f"{tmp_path}/token\n", 2)
            config = config.replace("scrape_interval: 5s", "scrape_interval: 200ms")
            config = config.replace("alerts.yml", str(DEPLOY / "prometheus/alerts.yml"))
            (tmp_path / "prometheus.yml").write_text(config)
            process = await asyncio.create_subprocess_exec(
                prometheus, f"--config.file={tmp_path}/prometheus.yml",
                f"--storage.tsdb.path={tmp_path}/data", "--web.listen-address=127.0.0.1:0",
                stderr=asyncio.subprocess.PIPE,
            )  # fmt: skip
            try:
                assert process.stderr is not None
                address = ""
                while not address:
                    line = (await process.stderr.readline()).decode()
                    assert line, "prometheus has ended"
                    found = re.search(r'msg="Listening on" address=(\S+)', line)
                    address = found[1] if found else ""
                async with httpx.AsyncClient(trust_env=False) as client:
                    while True:
                        query = f"http://{address}/api/v1/query?query=trainmover_step"
                        reply = await client.get(query)
                        if reply.status_code == 200 and (rows := reply.json()["data"]["result"]):
                            break
                        await asyncio.sleep(0.1)
                assert rows[0]["value"][1] == "7"
                assert rows[0]["metric"]["run"] == "night"
            finally:
                process.kill()
                await process.communicate()

    asyncio.run(run())
