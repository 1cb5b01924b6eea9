"""Machines without ranks: made ready, proven, chosen, and kept away if they fail. Pure."""
