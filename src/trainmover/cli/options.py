# SPDX-License-Identifier: Apache-2.0
"""Choice of the run that is meant."""

import argparse

from trainmover.launch.runs import Run, find_run


def which_run(options: argparse.Namespace) -> Run:
    """Return the live run meant. Raises UserError."""
    return find_run(options.run_id, options.run_dir)
