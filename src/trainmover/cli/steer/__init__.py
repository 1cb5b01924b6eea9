"""Commands that change a live run: its machines, and its end."""
