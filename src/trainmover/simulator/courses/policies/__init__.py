"""Courses of what is done unasked, or by a plan."""
