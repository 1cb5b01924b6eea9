# SPDX-License-Identifier: Apache-2.0
"""Ranks that stand still or come late: whose fault it is, and what follows. Pure."""
