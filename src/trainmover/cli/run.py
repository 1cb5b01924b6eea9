"""`trainmover run [torchrun's options] [ours] script.py ...`: a job on this machine."""

from trainmover.cli.screen import JsonScreen, Screen
from trainmover.launch.local import StoreProcess
from trainmover.launch.run_job import run_job

SUMMARY = "run a script on machines that can be replaced (in place of torchrun)"


def main(argv: list[str]) -> int:
    """The script's exit status; 130 after Ctrl-C, 143 after SIGTERM."""
    store = StoreProcess()  # first: it imports torch in the time in which we do
    try:
        from trainmover.cli.flags import parse

        flags = parse(argv)
    except BaseException:
        store.stop()
        raise
    screen = JsonScreen() if flags.json else Screen()
    result = run_job(
        flags.options,
        on_change=screen.notice,
        on_ready=lambda handle: screen.ready(handle, flags.options),
        store=store,
    )
    screen.ended(result)
    return result.code
