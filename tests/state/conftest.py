import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from captures import Job, run_in


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Callable[[str], Job]]:
    """Runs a script; what it imports of its own is forgotten afterwards."""
    sys.path.insert(0, str(tmp_path))
    yield lambda script: run_in(tmp_path, script)
    sys.path.remove(str(tmp_path))
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", None)).startswith(str(tmp_path)):
            del sys.modules[name]
