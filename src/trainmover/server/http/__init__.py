# SPDX-License-Identifier: Apache-2.0
"""The HTTP API of a live run, what Prometheus scrapes, and the page. Read `endpoints.py` first."""
