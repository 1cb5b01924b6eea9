"""`trainmover demo`: two runs, what is shown of them, and their comparison."""
