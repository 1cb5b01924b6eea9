# SPDX-License-Identifier: Apache-2.0
"""Courses of ranks that do not go on."""
