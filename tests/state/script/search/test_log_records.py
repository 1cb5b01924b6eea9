"""What was said counts where a handler keeps the last record, and the script asks it."""

from pathlib import Path

import captures
import pytest


@pytest.mark.parametrize(
    ("read", "counts"),
    [("self.record.args[0]", True), ("self.record.getMessage()", True), ("self.record", False)],
)
def test_the_last_record(read: str, counts: bool, tmp_path: Path) -> None:
    found = captures.names_in(
        tmp_path,
        f"""
        import logging
        class Last(logging.Handler):
            def __init__(self):
                super().__init__()
                self.record = None
            def emit(self, record):
                self.record = record
            def value(self):
                return {read}
        log, last = logging.getLogger("of records"), Last()
        log.setLevel(logging.INFO)
        log.propagate = False
        log.addHandler(last)
        def main():
            for x, y in job.batches(DATA):
                log.info("mean %s", float(x.sum()))
                last.value()
        main()
        """,
    )
    assert ("last.record.args" in found) is counts
