# SPDX-License-Identifier: Apache-2.0
"""Courses of snapshots and checkpoints."""
