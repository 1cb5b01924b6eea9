"""Who may join: a machine that people can name, and whose name steers no terminal."""

import argparse

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainmover.agent import flags
from trainmover.escaping import is_one_line
from trainmover.ids import MachineId
from trainmover.protocol.messages import PROTOCOL, Hello, JobSpec
from trainmover.server.machines.admission import NAME_MAX, refusal
from trainmover.version import VERSION

SPEC = JobSpec(run_id="r", argv=["train.py"])
HELLO = Hello(
    machine=MachineId("m3"), version=VERSION, protocol=PROTOCOL, nproc=SPEC.nproc, standby=True,
    vault="127.0.0.1:7", host="a", pid=1,
)  # fmt: skip
HOSTILE = ["m3\x1b[31m", "m3\n", "m3\x9b31m", "m\u202e3", "m3\u2028", "m\u200b3", "m3\x7f"]


def why_not(**said: str) -> str:
    return refusal(msgspec.structs.replace(HELLO, **said), SPEC, (), over=False)


def test_plain_names_are_taken_in() -> None:
    for name in ("m3", "Zürich 7", "node-1.rack", "x" * NAME_MAX, "日本"):
        assert why_not(machine=name, rack=name) == ""


@pytest.mark.parametrize("name", [*HOSTILE, "", "x" * (NAME_MAX + 1)])
def test_a_name_that_cannot_be_seen_is_refused_by_the_controller(name: str) -> None:
    assert "cannot be named so" in why_not(machine=name)


@given(st.sampled_from(["machine", "rack", "host", "version", "vault"]), st.text(min_size=1))
def test_no_refusal_hands_on_what_cannot_be_seen(field: str, text: str) -> None:
    refused = why_not(**{field: text})
    assert all(is_one_line(line) for line in refused.split("\n"))
    assert len(refused.split("\n")) in (1, 3)
    assert refused or is_one_line(text)


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("flag", ["--machine", "--rack", "--role"])
def test_a_name_that_cannot_be_seen_is_refused_by_the_agents_parser(name: str, flag: str) -> None:
    given = {"--controller": "a:1", "--machine": "m3", "--token-file": "t", flag: name}
    parser = flags.parser()
    parser.exit_on_error = False
    with pytest.raises(argparse.ArgumentError, match="characters that cannot be seen"):
        parser.parse_args([word for pair in given.items() for word in pair])
