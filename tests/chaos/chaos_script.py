"""Scripts of this folder as tests run them."""

import os
import signal
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
CLEAN_UP_S = 60.0
_WHY = "from chaos_net import why_none; print(why_none())"


def passes(script: str, *arguments: str, within_s: float) -> None:
    """Run it and show all that it printed if it fails. One that takes too long may clean up."""
    command = [sys.executable, str(HERE / script), *arguments]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        late = ""
        try:
            said, _ = process.communicate(timeout=within_s)
        except subprocess.TimeoutExpired:
            late = f"it was not done within {within_s:.0f} s\n"
            os.kill(process.pid, signal.SIGTERM)
            try:
                said, _ = process.communicate(timeout=CLEAN_UP_S)
            finally:
                process.kill()
        except BaseException:
            os.kill(process.pid, signal.SIGTERM)
            raise
    assert not late, late + said
    assert process.returncode == 0, said


def why_no_hosts() -> str:
    """Why hosts with a network of ours are impossible here; "" if they are not.

    Asked in a process of its own: to look makes a network, and unmakes it.
    """
    command = [sys.executable, "-c", _WHY]
    done = subprocess.run(command, capture_output=True, text=True, cwd=HERE, check=True)
    return done.stdout.strip()
