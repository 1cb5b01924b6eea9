"""What is asked wrongly is answered clearly, and costs nothing."""

from collections.abc import Callable
from typing import Any

import pytest
from native_calls import Call, perform
from native_data import DTYPES, IRREDUCIBLE, OPS, blank, code, op_code
from native_outcomes import outcome
from native_team import Formation, Rank, Team
from native_topologies import on

from trainmover import _native

two = pytest.mark.parametrize("team", on("2-shm", "2-tcp"), indirect=True)


def complaint(operation: Callable[[], Any]) -> str:
    """What a ValueError says; "" when none is raised."""
    try:
        operation()
    except ValueError as error:
        return str(error)
    return ""


def wrong_calls(rank: Rank, name: str) -> dict[str, str]:
    """Every wrong call with what is said of it."""
    group, (seat, size) = rank.groups[name], rank.seats[name]
    data, peer = blank("f32", 64), 1 - seat
    p, f32, total = data.pointer, code("f32"), op_code("sum")
    wrong: dict[str, Callable[[], Any]] = {
        "unknown dtype": lambda: group.all_reduce(p, 4, 200, total, False),
        "unknown op": lambda: group.all_reduce(p, 4, f32, 200, False),
        "root too high": lambda: group.broadcast(p, 4, f32, size, False),
        "root negative": lambda: group.reduce(p, 4, f32, total, -1, False),
        "too few outputs": lambda: group.all_gather(p, [p], 4, f32, False),
        "too many inputs": lambda: group.reduce_scatter([p] * 3, p, 4, f32, total, False),
        "counts missing": lambda: group.all_to_all([p, p], [4], [p, p], [4, 4], f32, False),
        "outputs off root": lambda: group.gather(p, [p], 4, f32, seat, False),
        "inputs at root": lambda: group.scatter([], p, 4, f32, seat, False),
        "send too far": lambda: group.send(p, 4, f32, size, 0),
        "receive from nowhere": lambda: group.recv(p, 4, f32, -2, 0),
    }
    said = {what: complaint(call) for what, call in wrong.items()}
    for dtype, op in IRREDUCIBLE:
        bad = (p, 4, code(dtype), op_code(op), False)
        said[f"{op} of {dtype}"] = complaint(lambda bad=bad: group.all_reduce(*bad))  # type: ignore[misc]
    assert peer in (0, 1)
    return said


@two
def test_wrong_arguments_are_named_and_cost_nothing(world: Formation) -> None:
    for said in world.all(wrong_calls):
        assert [what for what, text in said.items() if not text] == []
    world.all(perform, [Call("all_reduce", seed=2), Call("barrier")])


def wrong_groups(rank: Rank) -> list[str]:
    make = rank.endpoint.group
    tries = [("g", 2, 2), ("g", 0, 0)]
    return [complaint(lambda t=t: make(*t)) for t in tries]  # type: ignore[misc]


def wrong_views(rank: Rank, name: str) -> list[str]:
    group = rank.groups[name]
    own = group.card()
    views: list[list[bytes]] = [[], [own], [own, b""], [own, b"nonsense"], [own, own[:-1]]]
    views += [[own, own], [own, bytes(len(own))], [own, own + b"x"]]
    kinds = []
    for cards in views:
        try:
            kinds.append(outcome(lambda cards=cards: group.prepare(1, cards, 2.0)).kind)  # type: ignore[misc]
        except ValueError:
            kinds.append("ValueError")
    return kinds


@pytest.mark.parametrize("team", on("2-shm", "2-tcp"), indirect=True)
def test_views_that_cannot_be_are_refused(team: Team) -> None:
    for said in team.all(wrong_groups):
        assert all(said)
    world = Formation(team, "world")
    world.cards()
    for kinds in world.all(wrong_views):
        assert set(kinds) <= {"ValueError", "Refused"}, kinds
    world.advance()
    world.all(perform, [Call("all_reduce", seed=2)])


def time_out(rank: Rank, name: str) -> tuple[str, str]:
    group = rank.groups[name]
    group.set_timeout(0.2)
    ended = outcome(lambda: group.barrier(False))
    return ended.kind, ended.text


@two
def test_an_operation_can_have_a_deadline(world: Formation) -> None:
    kind, text = world.players[0].ask(time_out, "world")
    assert kind == "TimedOut"
    assert "seat 1" in text
    world.advance()
    world.players[0].ask(longer, "world")
    world.all(perform, [Call("all_reduce", seed=2)])


def longer(rank: Rank, name: str) -> None:
    rank.groups[name].set_timeout(60.0)


def test_the_codes_of_the_library_are_those_we_test() -> None:
    assert set(DTYPES) == set(_native.DTYPES)
    assert set(OPS) == set(_native.OPS)


def test_hmac_is_the_standard_one() -> None:
    import hashlib
    import hmac

    for key, message in [(b"", b""), (b"k", b"m" * 63), (b"k" * 200, b"m" * 1000)]:
        assert _native.hmac_sha256(key, message) == hmac.digest(key, message, hashlib.sha256)


def test_features_are_told() -> None:
    features = _native.features()
    assert features["isa"] in ("avx512", "avx2", "baseline")
    assert features["sanitizer"] in ("", "address", "thread")
    assert features["version"]
