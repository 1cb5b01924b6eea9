# SPDX-License-Identifier: Apache-2.0
"""What a machine can do, measured by a process of its own: `python -m trainmover.health`."""
