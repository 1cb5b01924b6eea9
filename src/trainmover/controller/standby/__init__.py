# SPDX-License-Identifier: Apache-2.0
"""Machines without ranks: made ready, proven, chosen, and kept away if they fail. Pure."""
