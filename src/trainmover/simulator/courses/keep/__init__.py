"""Courses of snapshots and checkpoints."""
