"""Courses of replicas that part."""
