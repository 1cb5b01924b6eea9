# SPDX-License-Identifier: Apache-2.0
"""Machines that people, or those whose machines they are, want to have: given up in time. Pure."""
