"""How fast state moves, and what keeping it safe costs."""
