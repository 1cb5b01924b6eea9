"""`trainmover run`: its flags, and what it shows."""
