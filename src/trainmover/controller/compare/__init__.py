"""What replicas hold, compared: who would lose nothing, and who is astray. Pure."""
