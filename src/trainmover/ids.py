# SPDX-License-Identifier: Apache-2.0
"""The nouns that every room shares. Nothing here imports anything of ours."""

from typing import NewType

MachineId = NewType("MachineId", str)
"""A machine of the job: `m1`, `m2`, ... on the local launcher, a host name elsewhere."""

Rank = NewType("Rank", int)
"""A place in the job, 0 <= rank < world size. A replaced machine's ranks keep their numbers."""

Slot = NewType("Slot", int)
"""A block of `nproc_per_node` consecutive ranks that lives on one machine."""

Epoch = NewType("Epoch", int)
"""One unbroken membership. Grows by one or more at every change, never repeats."""

Step = NewType("Step", int)
"""Number of a step, from 1. `committed=0` means: no step yet."""
