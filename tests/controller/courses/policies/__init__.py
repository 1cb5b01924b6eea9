# SPDX-License-Identifier: Apache-2.0
"""Courses of what is done unasked, or by a plan."""
