# SPDX-License-Identifier: Apache-2.0
"""Processes that have ranks, or are to have some; what they decide is decided by `rank`."""
