"""What a controller leaves to its successor, and finds of the one before."""
