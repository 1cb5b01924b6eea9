# SPDX-License-Identifier: Apache-2.0
"""Courses of what is told, and of ranks."""
