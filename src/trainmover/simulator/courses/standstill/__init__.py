"""Courses of ranks that do not go on."""
