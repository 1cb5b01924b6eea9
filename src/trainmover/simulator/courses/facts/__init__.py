"""Courses of what is told, and of ranks."""
