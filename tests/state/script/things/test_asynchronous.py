"""Tasks keep what lies in their coroutines, also where no name leads to them."""

from pathlib import Path

import captures
import pytest

KEPT = {
    "a task by a name that nobody reads later": """
        import asyncio
        async def smoother(inbox):
            mean = 1.0
            while True:
                mean = 0.9 * mean + 0.1 * await inbox.get()
        async def main():
            inbox = asyncio.Queue()
            task = asyncio.create_task(smoother(inbox))
            for number, (x, y) in enumerate(job.batches(DATA)):
                inbox.put_nowait(number)
                await asyncio.sleep(0)
                await asyncio.sleep(0)
        asyncio.run(main())
        """,
    "a task that only the loop has": """
        import asyncio
        async def counts():
            number = 0
            while True:
                number += 1
                await asyncio.sleep(0)
        loop = asyncio.new_event_loop()
        def main():
            loop.create_task(counts())
            for x, y in job.batches(DATA):
                loop.run_until_complete(asyncio.sleep(0))
        main()
        """,
    "what a loop is to call next": """
        import asyncio
        loop = asyncio.new_event_loop()
        box = [0]
        def main():
            for number, (x, y) in enumerate(job.batches(DATA)):
                loop.call_soon(box.__setitem__, 0, number // 4)
                if number % 4 == 0:
                    loop.run_until_complete(asyncio.sleep(0))
        main()
        """,
}


@pytest.mark.parametrize("name", KEPT)
def test_what_they_hold_counts(name: str, tmp_path: Path) -> None:
    found = "".join(captures.names_in(tmp_path, KEPT[name]))
    assert "loop" in found or "task" in found


ALIKE = {
    "a loop that has run": """
        import asyncio
        loop = asyncio.new_event_loop()
        def main():
            for x, y in job.batches(DATA):
                loop.run_until_complete(asyncio.sleep(0))
        main()
        """,
    "a task that waits": """
        import asyncio
        async def waits(inbox):
            while True:
                await inbox.get()
        async def main():
            inbox = asyncio.Queue()
            task = asyncio.create_task(waits(inbox))
            for x, y in job.batches(DATA):
                inbox.put_nowait(1)
                await asyncio.sleep(0)
                await asyncio.sleep(0)
        asyncio.run(main())
        """,
}


@pytest.mark.parametrize("name", ALIKE)
def test_those_that_do_the_same_are_equal(name: str, tmp_path: Path) -> None:
    assert captures.names_in(tmp_path, ALIKE[name]) == []
