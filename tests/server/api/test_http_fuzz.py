"""Requests by chance, as the OpenAPI document describes them or not: none breaks the API."""

import importlib
from pathlib import Path
from typing import Any

import httpx
import pytest
from http_living import Living
from http_plays import AUTH, V1, VIEWER

from trainmover.server.http import endpoints

ENDING = {f"{V1}/stop", f"{V1}/kill", f"{V1}/events"}
"""What ends the job, or never ends itself."""
EXAMPLES = {"minute": 300, "long": 2000}
"""For each operation; the name says what both visitors come to together."""


@pytest.mark.parametrize(
    "form",
    [
        pytest.param("minute", marks=pytest.mark.timeout(600)),
        pytest.param("long", marks=[pytest.mark.soak, pytest.mark.timeout(3600)]),
    ],
)
@pytest.mark.parametrize("who", [AUTH, VIEWER], ids=["operator", "viewer"])
def test_no_request_breaks_the_api(
    who: dict[str, str], form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("schemathesis", reason="it is a tool of developers")
    monkeypatch.setattr(endpoints, "WANTS_S", 0.001)  # A wait that anybody may make long.
    schemathesis = importlib.import_module("schemathesis")
    hypothesis = importlib.import_module("hypothesis")
    with Living(tmp_path) as living:
        described = httpx.get(f"{living.url}{V1}/openapi.json", headers=who).json()
        described["paths"] = {
            path: each for path, each in described["paths"].items() if path not in ENDING
        }
        document = schemathesis.openapi.from_dict(described)
        document.config.update(base_url=living.url)
        checks = [schemathesis.checks.not_a_server_error]
        for result in document.get_all_operations():
            operation = result.ok()

            @hypothesis.settings(
                max_examples=EXAMPLES[form], deadline=None, database=None, derandomize=True,
                suppress_health_check=list(hypothesis.HealthCheck),
            )  # fmt: skip
            @hypothesis.given(case=operation.as_strategy())
            def one(case: Any) -> None:
                case.call_and_validate(headers=who, checks=checks, timeout=60)

            one()
        assert httpx.get(f"{living.url}{V1}/status", headers=who).status_code == 200
        assert not living.server.over, living.server.job.ended_because
