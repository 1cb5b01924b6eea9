"""Moves that follow one another until what somebody asked for is there. Pure."""
