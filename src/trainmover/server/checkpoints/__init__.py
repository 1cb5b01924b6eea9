# SPDX-License-Identifier: Apache-2.0
"""Checkpoints in their folder: published, checked, found."""
