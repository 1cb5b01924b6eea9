# SPDX-License-Identifier: Apache-2.0
"""What a job should do next. Pure: no clock, sockets, files or torch."""

from trainmover.controller.decide import decide
from trainmover.controller.state import Job

__all__ = ["Job", "decide"]
