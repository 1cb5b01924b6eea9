# SPDX-License-Identifier: Apache-2.0
"""`trainmover controller --run-dir DIR`: decides for the run of a directory, from its journal.

`trainmover run` starts it, and starts it again when it dies. By hand it is of use where the agents
live on other machines than their controller did, and still look for it.
"""

import argparse

from trainmover.cli.run.screen import JsonScreen, Screen
from trainmover.errors import UserError
from trainmover.launch.controller.control import Inherited, control


def main(options: argparse.Namespace) -> int:
    """Return the exit status of the job."""
    if options.run_dir is None:
        raise UserError(
            "No run was named.",
            means="Nothing was done.",
            do="Give the directory it was started in: --run-dir DIR",
        )
    screen = JsonScreen() if options.json else Screen()
    inherited = Inherited(
        supervisor=options.supervisor,
        control=options.control,
        api=options.api,
        checkpoint_lock=options.checkpoint_lock,
        journal_memory=options.journal_memory,
        parent=options.parent,
    )
    return control(
        options.run_dir.resolve(),
        inherited,
        on_change=screen.notice,
        on_ready=screen.ready,
        on_end=screen.ended,
    )
