"""What very many say costs the same each time, and reads as a dict or a set would."""

import timeit
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from trainmover.controller.facts import Facts, Ranks
from trainmover.controller.state import Machine, Machines, MachineState

PAIRS = st.lists(st.tuples(st.integers(0, 300), st.integers()), max_size=400)


@given(PAIRS)
def test_facts_are_a_dict_in_the_same_order(pairs: list[tuple[int, int]]) -> None:
    known: dict[int, int] = {}
    facts: Facts[int, int] = Facts()
    before = facts
    for number, (key, value) in enumerate(pairs):
        known[key], facts = value, facts.having(key, value)
        assert facts[key] == value
        assert len(facts) == len(known)
        if number % 7 == 0:  # Whoever looks at all of them changes nothing.
            assert list(facts.items()) == list(known.items())
    assert (list(facts), list(facts.values())) == (list(known), list(known.values()))
    assert facts == known == facts == Facts(known)
    assert [key in facts for key in range(300)] == [key in known for key in range(300)]
    assert (len(before), dict(before)) == (0, {})
    assert list(facts.without({1, 2})) == [key for key in known if key not in (1, 2)]


def test_facts_that_are_many_are_all_there() -> None:
    facts: Facts[int, int] = Facts()
    for key in range(3000):
        facts = facts.having(key * 7 % 3001, key)
        assert len(facts) == key + 1
    assert dict(facts) == {key * 7 % 3001: key for key in range(3000)}


def test_machines_are_counted_by_state() -> None:
    one, other = (Machine(name, False, "v", "h") for name in ("m1", "m2"))
    known = Machines().having("m1", one).having("m2", other)
    assert known.count(MachineState.STARTING) == 2
    known = known.having("m1", replace(one, state=MachineState.IDLE))
    known = known.having("m1", replace(one, state=MachineState.ACTIVE))
    counts = [known.count(state) for state in MachineState]
    assert counts == [sum(m.state is state for m in known.values()) for state in MachineState]
    assert known.without({"m2"}).count(MachineState.STARTING) == 0


@given(st.lists(st.integers(0, 200)), st.lists(st.integers(0, 200)))
def test_ranks_are_a_set(some: list[int], more: list[int]) -> None:
    ranks = Ranks()
    for rank in some:
        ranks = ranks.having(rank)
    assert (list(ranks), len(ranks)) == (sorted(set(some)), len(set(some)))
    assert ranks == set(some)
    assert hash(ranks) == hash(Ranks(some))
    assert ranks.union(more) == set(some) | set(more)
    assert ranks.without(more) == set(some) - set(more)
    assert ({*more} <= ranks) == (set(more) <= set(some))
    assert [rank in ranks for rank in range(201)] == [rank in set(some) for rank in range(201)]
    assert -1 not in ranks
    assert ranks != 5


def test_one_more_of_many_costs_what_one_more_of_few_does() -> None:
    """Copies of all would be a thousand times as dear. What is measured is the least of many."""

    def each(count: int) -> float:
        facts, ranks = Facts(dict.fromkeys(range(count), "x")), Ranks(range(count))

        def say() -> None:
            more, bits = facts, ranks
            for key in range(0, count, count // 50):
                more, bits = more.having(key, "y"), bits.having(key)

        return min(timeit.repeat(say, number=1, repeat=9))

    assert each(50_000) < 30 * each(50)
