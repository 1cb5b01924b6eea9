"""Shared by all tests: each folder's own modules are importable by their plain names."""
