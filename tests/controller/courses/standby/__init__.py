# SPDX-License-Identifier: Apache-2.0
"""Courses of machines that hold no ranks yet."""
