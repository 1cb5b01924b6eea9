"""A script goes on from one fetch as from another, or it does not."""

import dis
from types import CodeType

import pytest

from trainmover.state.script.place.alike import go_on_alike


def code_of(source: str) -> CodeType:
    return compile(source, "script.py", "exec")


def fetches(code: CodeType) -> list[int]:
    """Offsets of the calls of `next`, and of loops over batches, as frames have them."""
    found = []
    every = list(dis.get_instructions(code))
    for number, one in enumerate(every):
        if one.opname == "FOR_ITER":
            found.append(one.offset)
        if one.argval == "next":
            call = next(its for its in every[number:] if its.opname == "CALL")
            found.append(call.offset)
    return found


ALIKE = {
    "a condition": """
batch = next(batches)
while job.steps < 30:
    step(batch)
    batch = next(batches)
""",
    "two conditions": """
x, y = next(batches)
while x is not None and job.steps < 30:
    step(x, y)
    x, y = next(batches)
done()
""",
    "none": """
batch = next(batches)
while True:
    step(batch)
    if over():
        break
    batch = next(batches)
""",
    "a line behind the loop": """
batch = next(batches, None)
while not batch is None:
    step(batch)
    batch = next(batches, None)
""",
    "more in the same statement": """
batch = prepared(next(batches), size=8)
while job.steps < 30:
    step(batch)
    batch = prepared(next(batches), size=8)
""",
}
OTHERWISE = {
    "a line between": """
batch = next(batches)
start()
while job.steps < 30:
    step(batch)
    batch = next(batches)
""",
    "a line behind": """
batch = next(batches)
while job.steps < 30:
    step(batch)
    batch = next(batches)
    scheduler.step()
""",
    "another name": """
batch = next(batches)
while job.steps < 30:
    following = next(batches)
    step(batch)
    batch = following
""",
    "another condition": """
batch = next(batches)
if job.steps < 2:
    while job.steps < 30:
        step(batch)
        batch = next(batches)
""",
    "read before": """
batch = 2 * next(batches)
while job.steps < 30:
    step(batch)
    batch = 3 * next(batches)
""",
    "steps of two kinds": """
while job.steps < 30:
    if job.steps % 2:
        batch = next(batches)
        even(batch)
    else:
        batch = next(batches)
        odd(batch)
""",
    "another function": """
batch = first(next(batches))
while job.steps < 30:
    step(batch)
    batch = second(next(batches))
""",
    "what is asked": """
batch = next(batches) in known
while batch:
    step(batch)
    batch = next(batches) not in known
""",
    "what is caught": """
batch = next(batches)
while True:
    step(batch)
    try:
        batch = next(batches)
    except StopIteration:
        break
""",
    "loops": """
for batch in batches:
    first(batch)
for batch in batches:
    second(batch)
""",
}


def test_a_short_function_goes_on_as_from_where_it_stands() -> None:
    outer = code_of("def begin(it):\n    fetch = lambda: next(it)\n    return fetch")
    inner = next(one for one in outer.co_consts if isinstance(one, CodeType))
    code = next(one for one in inner.co_consts if isinstance(one, CodeType))
    (here,) = fetches(code)
    assert go_on_alike(code, here, here)


@pytest.mark.parametrize("name", ALIKE)
def test_it_goes_on_alike(name: str) -> None:
    code = code_of(ALIKE[name])
    here, there = fetches(code)
    assert go_on_alike(code, here, there)
    assert go_on_alike(code, there, here)


@pytest.mark.parametrize("name", OTHERWISE)
def test_it_goes_on_otherwise(name: str) -> None:
    code = code_of(OTHERWISE[name])
    here, there = fetches(code)
    assert not go_on_alike(code, here, there)
    assert not go_on_alike(code, there, here)


@pytest.mark.parametrize("name", [*ALIKE, *OTHERWISE])
def test_it_goes_on_from_any_place_as_from_there(name: str) -> None:
    code = code_of((ALIKE | OTHERWISE)[name])
    assert all(go_on_alike(code, at, at) for at in fetches(code))
