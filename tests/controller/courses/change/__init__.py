# SPDX-License-Identifier: Apache-2.0
"""Courses of losses, moves, ends and beginnings."""
