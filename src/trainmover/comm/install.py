# SPDX-License-Identifier: Apache-2.0
"""`import trainmover.comm.install` serves the gloo groups of a process without a runtime.

Groups then behave as stock gloo's do, errors included. `TRAINMOVER_COMM` names the communicator.
Under `trainmover run` groups are served already, and it does nothing: one script is for both.
"""

import os

from trainmover.comm.groups import groups
from trainmover.comm.hook import hook_torch, is_hooked
from trainmover.communicators import default

if not is_hooked():
    groups.choose(os.environ.get("TRAINMOVER_COMM") or default())
    hook_torch(groups)
