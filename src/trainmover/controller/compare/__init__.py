"""What replicas hold, compared: who would lose nothing, and who has diverged. Pure."""
