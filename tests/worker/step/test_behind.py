"""What steps change behind their gate: what is proved of it, and when."""

from trainmover.worker.step.behind import Behind, behind_gate


def test_what_is_changed_behind_the_gate_is_compared_as_it_was_and_as_it_became() -> None:
    ranks = [
        behind_gate({"own": before, "same": b"x", "kept": kept}, {"own": after, "same": b"y"})
        for before, kept, after in [(b"1", b"1", b"3"), (b"1", b"2", b"3"), (b"2", b"1", b"3")]
    ]
    assert ranks[0] == ranks[1] == (["own", "same"], ranks[0][1])
    assert all(0 < digest < 2**63 for _, digest in ranks)
    other_before, [_, other_after] = ranks[2][1], behind_gate({"own": b"1"}, {"own": b"4"})
    assert len({ranks[0][1], other_before, other_after}) == 3


def test_the_same_bytes_of_another_name_are_another_change() -> None:
    [one, other] = [behind_gate({name: b"1"}, {name: b"2"})[1] for name in ("mean", "count")]
    assert one != other


def test_what_stays_as_at_the_gate_does_not_count() -> None:
    assert behind_gate({"own": b"1"}, {"own": b"1", "new": b"2"}) == ([], 0)


def test_what_ranks_change_alike_is_proved_by_the_first_gate_behind_the_change() -> None:
    behind = Behind()
    unproved = []
    for value, alike in enumerate([None, None, True, True, None, False, None, True]):
        behind.look({"own": b"%d" % value}, {"own": b"%d" % (value + 1)}, alike=alike)
        unproved.append(behind.unproved)
    assert unproved == [["own"], ["own"], [], [], [], ["own"], ["own"], []]


def test_what_begins_late_is_not_proved_by_what_began_before() -> None:
    behind = Behind()
    for value in range(1, 5):
        behind.look(
            {"early": b"%d" % value, "late": b"0"}, {"early": b"", "late": b"0"}, alike=True
        )
    behind.look({"early": b"5", "late": b"0"}, {"early": b"", "late": b"1"}, alike=True)
    assert behind.unproved == ["late"]


def test_what_each_rank_changes_in_its_own_way_is_never_proved() -> None:
    behind = Behind()
    for _ in range(5):
        behind.look({"own": b"1"}, {"own": b"2"}, alike=False)
        assert behind.unproved == ["own"]
