"""`import trainmover.comm.install` serves the gloo groups of a process without a runtime.

Groups then behave as stock gloo's do, errors included. `TRAINMOVER_COMM` names the communicator.
"""

import os

from trainmover.comm.groups import groups
from trainmover.comm.hook import hook_torch
from trainmover.errors import UserError

_CHOSEN = os.environ.get("TRAINMOVER_COMM", "gloo")

if _CHOSEN != "gloo":
    raise UserError(f"TRAINMOVER_COMM={_CHOSEN} is not a communicator", do="use gloo")

hook_torch(groups)
