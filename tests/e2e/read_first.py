"""For the fork server of the tests: reads the source that all of their scripts share, once.

What a worker knows of a source file follows from the file alone. Each of the thousands of workers
that tests start would read the same few ones again, for a tenth of its life.
"""

import sys
from pathlib import Path

from trainmover.state.script.code.source import source_of

HERE = Path(__file__).parent


def before_forks() -> None:
    sys.path.remove(str(HERE))  # It is there for this module alone.
    source_of(str(HERE / "train.py"))
    for kit in sorted(HERE.glob("scripts/*/kit.py")):
        source_of(str(kit))
        source_of(str(next(path for path in sorted(kit.parent.glob("*.py")) if path != kit)))
