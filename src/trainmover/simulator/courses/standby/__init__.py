"""Courses of machines that hold no ranks yet."""
