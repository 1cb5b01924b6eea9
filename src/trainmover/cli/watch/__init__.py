# SPDX-License-Identifier: Apache-2.0
"""Verbs that look at a run: what it does, what happened in it, what it holds."""
