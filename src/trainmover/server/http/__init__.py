"""The HTTP API of a live run, what Prometheus scrapes, and the page. Read `endpoints.py` first."""
