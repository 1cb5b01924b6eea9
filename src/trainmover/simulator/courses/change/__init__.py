"""Courses of losses, moves, ends and beginnings."""
