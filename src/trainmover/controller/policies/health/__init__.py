"""What machines can do, measured before they take ranks. Pure."""
