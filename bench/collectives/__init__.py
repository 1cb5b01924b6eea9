# SPDX-License-Identifier: Apache-2.0
"""Our collectives beside gloo and Open MPI: time of a call, of a switchover, of an abort."""
