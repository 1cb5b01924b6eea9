"""What a script keeps in objects of Python's own library is found, as far as attributes say it."""

from pathlib import Path

import captures
import pytest

KEPT = {
    "a queue of asyncio's": """
        import asyncio
        kept = asyncio.Queue()
        def main():
            for x, y in job.batches(DATA):
                kept.put_nowait(x)
        main()
        """,
    "a semaphore of asyncio's": """
        import asyncio
        kept = asyncio.Semaphore(100)
        async def take():
            await kept.acquire()
        def main():
            for x, y in job.batches(DATA):
                asyncio.run(take())
        main()
        """,
    "what a future of asyncio's was given": """
        import asyncio
        loop = asyncio.new_event_loop()
        kept = loop.create_future()
        def main():
            for number, (x, y) in enumerate(job.batches(DATA)):
                if number == 5:
                    kept.set_result(3)
        main()
        loop.close()
        """,
    "what a stack is to undo": """
        import contextlib
        class Trainer:
            def __init__(self):
                self.kept, self.factor = contextlib.ExitStack(), 1.0
            def fit(self):
                for number, (x, y) in enumerate(job.batches(DATA)):
                    if number == 5:
                        kept.callback(print, self.factor)
        trainer = Trainer()
        kept = trainer.kept
        trainer.fit()
        kept.pop_all()
        """,
    "an event of threads": """
        import threading
        kept = threading.Event()
        def main():
            for number, (x, y) in enumerate(job.batches(DATA)):
                if number == 5:
                    kept.set()
        main()
        """,
    "memory that is read and written": """
        import io
        kept = io.BufferedRandom(io.BytesIO())
        def main():
            for x, y in job.batches(DATA):
                kept.write(b"one")
        main()
        """,
    "a file that is memory as long as it is small": """
        import tempfile
        kept = tempfile.SpooledTemporaryFile()
        def main():
            for x, y in job.batches(DATA):
                kept.write(b"one")
        main()
        """,
    "sections of a config": """
        import configparser
        kept = configparser.ConfigParser()
        kept.add_section("run")
        def main():
            for number, (x, y) in enumerate(job.batches(DATA)):
                kept.set("run", "rate", str(number))
        main()
        """,
    "notes on an exception": """
        kept = ValueError("bad")
        def main():
            for x, y in job.batches(DATA):
                kept.add_note("again")
        main()
        """,
    "what an exception came of": """
        kept = ValueError("bad")
        def main():
            for number, (x, y) in enumerate(job.batches(DATA)):
                kept.__cause__ = KeyError(number)
        main()
        """,
    "a list that processes share": """
        from multiprocessing.shared_memory import ShareableList
        kept = ShareableList([0, 1])
        def main():
            for number, (x, y) in enumerate(job.batches(DATA)):
                kept[0] = number
        main()
        kept.shm.close()
        kept.shm.unlink()
        """,
    "an element of a tree": """
        from xml.etree.ElementTree import Element
        kept = Element('run')
        def main():
            for number, (x, y) in enumerate(job.batches(DATA)):
                kept.set("rate", str(number))
        main()
        """,
    "a context of decimals": """
        import decimal
        kept = decimal.Context()
        def main():
            for number, (x, y) in enumerate(job.batches(DATA)):
                kept.prec = number + 3
        main()
        """,
    "what a decoder has begun": """
        import codecs
        kept = codecs.getincrementaldecoder('utf8')()
        def main():
            for number, (x, y) in enumerate(job.batches(DATA)):
                if number == 7:
                    kept.decode(bytes([0xc3]))
        main()
        """,
    "a shelf in memory": """
        import shelve
        kept = shelve.Shelf({})
        def main():
            for number, (x, y) in enumerate(job.batches(DATA)):
                kept["rate"] = number
        main()
        """,
    "rows of a table in text": """
        import csv, io
        kept = csv.DictReader(io.StringIO('a,b' + '\\n1,2' * 40))
        def main():
            for number, (x, y) in enumerate(job.batches(DATA)):
                next(kept)
        main()
        """,
    "memory of torch's": """
        kept = torch.UntypedStorage(8)
        def main():
            for number, (x, y) in enumerate(job.batches(DATA)):
                kept[0] = number
        main()
        """,
    "how far numpy is": """
        kept = numpy.nditer(numpy.zeros(50))
        def main():
            for number, (x, y) in enumerate(job.batches(DATA)):
                next(kept)
        main()
        """,
    "a member of an enumeration that is made anew": """
        import enum
        kept = None
        def main():
            global kept
            for number, (x, y) in enumerate(job.batches(DATA)):
                kept = enum.Enum("Kept", {"RATE": number}).RATE
        main()
        """,
}


@pytest.mark.parametrize("name", KEPT)
def test_what_it_holds_counts(name: str, tmp_path: Path) -> None:
    assert "kept" in "".join(captures.names_in(tmp_path, KEPT[name]))


ALIKE = {
    "an event that nobody sets": """
        import threading
        kept = threading.Event()
        def main():
            for x, y in job.batches(DATA):
                kept.clear()
        main()
        """,
    "a future that is not there yet": """
        import asyncio
        loop = asyncio.new_event_loop()
        kept = [loop.create_future()]
        def main():
            for x, y in job.batches(DATA):
                kept[0] = loop.create_future()
        main()
        loop.close()
        """,
    "rows that were read": """
        import csv, io
        kept = csv.DictReader(io.StringIO("a,b" + "\\n1,2" * 40))
        rows = [*kept]
        def main():
            for x, y in job.batches(DATA):
                pass
        main()
        """,
    "a config of the environment": """
        import configparser, os
        kept = configparser.ConfigParser(os.environ, interpolation=None)
        def main():
            for number, (x, y) in enumerate(job.batches(DATA)):
                os.environ["TOLD"] = "1"
        main()
        """,
    "a log in a file": """
        import tempfile
        kept = tempfile.TemporaryFile("w")
        def main():
            for x, y in job.batches(DATA):
                kept.write("one")
        main()
        """,
}


@pytest.mark.parametrize("name", ALIKE)
def test_what_is_no_value_is_left_alone(name: str, tmp_path: Path) -> None:
    assert not {*captures.names_in(tmp_path, ALIKE[name])} - {"number"}
