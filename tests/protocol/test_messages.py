"""Every message comes back equal; what is no message is a ProtocolError and nothing else."""

import contextlib
from collections.abc import Callable
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from trainmover.errors import ProtocolError
from trainmover.protocol import messages as m
from trainmover.protocol.messages import (
    AGENT_FACTS,
    ORDERS,
    WORKER_FACTS,
    decode_agent_fact,
    decode_order,
    decode_worker_fact,
    encode,
)

Decoder = Callable[[bytes], m.Message]
KINDS: list[tuple[type[m.Message], Decoder]] = [
    (kind, decode)
    for union, decode in (
        (WORKER_FACTS, decode_worker_fact),
        (AGENT_FACTS, decode_agent_fact),
        (ORDERS, decode_order),
    )
    for kind in get_args(union)
]
every_kind = pytest.mark.parametrize(
    ("kind", "decode"), KINDS, ids=[kind.__name__ for kind, _ in KINDS]
)

SMALL = st.integers(0, 2**40)
LEAVES: dict[Any, st.SearchStrategy[Any]] = {
    int: SMALL,
    float: st.floats(allow_nan=False),
    str: st.text(max_size=8),
    bytes: st.binary(max_size=8),
    bool: st.booleans(),
    type(None): st.none(),
    msgspec.Raw: st.just(msgspec.Raw(b"\xc0")),
}


def values(kind: Any) -> st.SearchStrategy[Any]:
    """Values of a field's type, from what msgspec says it is."""
    kind = getattr(kind, "__supertype__", kind)
    if kind in LEAVES:
        return LEAVES[kind]
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return messages(kind)
    origin, arguments = getattr(kind, "__origin__", None), get_args(kind)
    if origin is dict:
        return st.dictionaries(values(arguments[0]), values(arguments[1]), max_size=3)
    if origin is list:
        return st.lists(values(arguments[0]), max_size=3)
    if origin is tuple:
        return st.tuples(*map(values, arguments))
    return st.one_of(*map(values, arguments))


def messages(kind: Any) -> st.SearchStrategy[Any]:
    fields = msgspec.structs.fields(kind)
    return st.builds(kind, **{field.name: values(field.type) for field in fields})


@every_kind
@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_every_message_comes_back_equal(kind: Any, decode: Decoder, data: st.DataObject) -> None:
    message = data.draw(messages(kind))
    assert decode(encode(message)) == message


@every_kind
def test_a_message_is_no_message_of_another_direction(kind: Any, decode: Decoder) -> None:
    payload = msgspec.msgpack.encode({"type": kind.__name__, "rank": "not a number"})
    for other in (decode_worker_fact, decode_agent_fact, decode_order):
        if other is not decode:
            with pytest.raises(ProtocolError):
                other(payload)


def test_names_on_the_wire_are_unique() -> None:
    names = [kind.__name__ for kind, _ in KINDS]
    assert len(set(names)) == len(names)


def without(message: m.Message, field: str) -> bytes:
    table = msgspec.msgpack.decode(encode(message))
    del table[field]
    return msgspec.msgpack.encode(table)


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\xc1",
        b"\x93\1\2",
        msgspec.msgpack.encode(None),
        msgspec.msgpack.encode([1, 2]),
        msgspec.msgpack.encode({}),
        msgspec.msgpack.encode({"type": "Unknown"}),
        msgspec.msgpack.encode({"type": "Switched", "rank": "one", "epoch": 1}),
        without(m.Switched(rank=0, epoch=1), "epoch"),
        encode(m.Left())[:-1],
        encode(m.Left()) + b"\0",
        encode(m.Die()),
    ],
)
def test_what_is_no_fact_of_a_worker_is_a_protocol_error(payload: bytes) -> None:
    with pytest.raises(ProtocolError, match="could not be read as a message"):
        decode_worker_fact(payload)


@given(st.binary(max_size=60))
def test_no_bytes_do_worse_than_a_protocol_error(payload: bytes) -> None:
    for decode in (decode_worker_fact, decode_agent_fact, decode_order):
        with contextlib.suppress(ProtocolError):
            decode(payload)


def test_a_workers_fact_travels_inside_its_agents() -> None:
    fact = m.Recorded(rank=3, step=3, trace="t", digest="d", bytes=9)
    outer = m.FromWorker(local_rank=1, payload=msgspec.Raw(encode(fact)))
    received = decode_agent_fact(encode(outer))
    assert isinstance(received, m.FromWorker)
    assert decode_worker_fact(received.payload) == fact


def test_reported_values_keep_their_bits() -> None:
    values = {"tiny": 5e-324, "minus": -0.0, "third": 1 / 3, "inf": float("inf")}
    fact = m.Committed(rank=0, epoch=1, rows=[m.Row(step=1, at_us=2, values=values)])
    received = decode_worker_fact(encode(fact))
    assert isinstance(received, m.Committed)
    assert repr(received.rows[0].values) == repr(values)


def test_a_job_knows_its_ranks() -> None:
    spec = m.JobSpec(run_id="r", argv=["x"], machines=3, nproc=2)
    assert spec.world_size == 6
    assert [spec.ranks(slot) for slot in range(3)] == [[0, 1], [2, 3], [4, 5]]


def test_a_certificate_is_equal_if_its_digests_are() -> None:
    same = m.Certificate(
        rank=1, source_rank=0, step=7, epoch=2, source_digest="a", joiner_digest="a", trace="t",
        position="", bytes=8, state_ms=1.0,
    )  # fmt: skip
    assert same.equal
    assert not msgspec.structs.replace(same, joiner_digest="b").equal
