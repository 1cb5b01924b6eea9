# SPDX-License-Identifier: Apache-2.0
"""Moves that follow one another until what somebody asked for is there. Pure."""
