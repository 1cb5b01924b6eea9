# SPDX-License-Identifier: Apache-2.0
"""Groups whose members change while the processes and the modules that hold them stay."""

from trainmover.comm.calls.tap import Call, Tap
from trainmover.comm.communicator import Communicator, LinkStats, Session, View
from trainmover.comm.failures import (
    CallsDiffer,
    ConnectionEnded,
    DeviceLost,
    Drained,
    DrainedObject,
    ReplayMismatch,
)
from trainmover.comm.gloo.communicator import GlooCommunicator
from trainmover.comm.groups import Groups, Mode, groups
from trainmover.comm.hook import hook_torch
from trainmover.comm.meet.preparation import Preparation
from trainmover.comm.private import PrivateGroup
from trainmover.comm.shim import ShimGroup
from trainmover.comm.stats import CommStats, SwitchStats

__all__ = [
    "Call",
    "CallsDiffer",
    "CommStats",
    "Communicator",
    "ConnectionEnded",
    "DeviceLost",
    "Drained",
    "DrainedObject",
    "GlooCommunicator",
    "Groups",
    "LinkStats",
    "Mode",
    "Preparation",
    "PrivateGroup",
    "ReplayMismatch",
    "Session",
    "ShimGroup",
    "SwitchStats",
    "Tap",
    "View",
    "groups",
    "hook_torch",
]
