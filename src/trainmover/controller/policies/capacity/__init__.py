# SPDX-License-Identifier: Apache-2.0
"""Machines that a job wants from an engine, holds, and gives back. Pure."""
