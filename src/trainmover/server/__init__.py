# SPDX-License-Identifier: Apache-2.0
"""Hosts the controller: the loop, the clock, the links to agents, the HTTP API."""
