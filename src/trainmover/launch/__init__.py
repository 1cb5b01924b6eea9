# SPDX-License-Identifier: Apache-2.0
"""Starts the processes of a job on this machine and sees to it that none is left."""
