"""Strangers stand at a listener in the order they came, and go in it."""

from hypothesis import given
from hypothesis import strategies as st

from trainmover.protocol.unauthenticated import Unauthenticated


def test_whoever_comes_is_let_in_and_the_oldest_goes() -> None:
    unknown: Unauthenticated[str] = Unauthenticated(most=2, patience_s=5.0)
    assert [unknown.come(name, now_s=at) for at, name in enumerate("abcd")] == [
        None,
        None,
        "a",
        "b",
    ]
    assert len(unknown) == 2


def test_who_has_proved_itself_makes_room() -> None:
    unknown: Unauthenticated[str] = Unauthenticated(most=2, patience_s=5.0)
    unknown.come("a", 0.0)
    unknown.come("b", 1.0)
    unknown.go("a")
    assert unknown.come("c", 2.0) is None
    unknown.go("never here")
    assert unknown.late(6.5) == ["b"]
    assert unknown.late(6.5) == []


def test_who_says_something_is_not_pushed_out_by_who_only_knocks() -> None:
    unknown: Unauthenticated[str] = Unauthenticated(most=3, patience_s=5.0)
    for at, name in enumerate(("shakes hands", "b", "c")):
        unknown.come(name, now_s=at)
    unknown.heard("shakes hands")
    assert [unknown.come(name, 3.0) for name in "defg"] == ["b", "c", "d", "e"]
    assert unknown.late(5.5) == ["shakes hands"]


def test_who_only_knocks_is_not_pushed_out_by_many_who_speak() -> None:
    unknown: Unauthenticated[str] = Unauthenticated(most=3, patience_s=5.0)
    unknown.come("a member", 0.0)
    pushed_out = []
    for at, name in enumerate("abcd"):
        pushed_out.append(unknown.come(name, now_s=at))
        unknown.heard(name)
    assert pushed_out == [None, None, "a", "b"]


@given(st.lists(st.tuples(st.integers(0, 30), st.floats(0, 3)), max_size=60))
def test_there_are_never_too_many_nor_for_too_long(story: list[tuple[int, float]]) -> None:
    unknown: Unauthenticated[int] = Unauthenticated(most=5, patience_s=4.0)
    now_s, came = 0.0, dict[int, float]()
    for peer, pause_s in story:
        now_s += pause_s
        for gone in unknown.late(now_s):
            assert now_s - came.pop(gone) > 4.0
        if peer in came:
            unknown.go(peer)
            del came[peer]
        else:
            pushed_out = unknown.come(peer, now_s)
            if pushed_out is not None:
                assert came[pushed_out] == min(came.values())
                del came[pushed_out]
            came[peer] = now_s
        assert len(unknown) == len(came) <= 5
        assert all(now_s - came_s <= 4.0 for came_s in came.values())
