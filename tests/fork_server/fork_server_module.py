"""What tests have forked from a fork server."""

import os
import random
import signal
import sys

import numpy as np

known = 0


def before_forks() -> None:
    global known
    known = os.getpid()


def main() -> None:
    what = sys.argv[1]
    if what == "known":
        print(known)
    elif what == "draw":
        print(random.random(), np.random.random())
    elif what == "raise":
        raise ValueError("planted")
    elif what == "wait":
        signal.pause()
    else:
        tell()


def tell() -> None:
    print(f"arguments {sys.argv[1:]}")
    print(f"parent {os.getppid()}")
    print(f"session {os.getsid(0)}")
    print(f"WHO={os.environ['WHO']} home={'HOME' in os.environ}")
    print(f"cwd {os.getcwd()}", flush=True)
    os.write(int(os.environ["PIPE"]), b"by the pipe\n")
    assert sys.stdin.read() == ""
    print("at the end")
