"""Checkpoints in their folder: published, checked, found."""
