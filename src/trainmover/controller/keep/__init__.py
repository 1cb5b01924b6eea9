# SPDX-License-Identifier: Apache-2.0
"""What is kept for later: snapshots of all ranks, and checkpoints on disk. Pure."""
