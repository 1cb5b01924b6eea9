"""Messages between two members while strangers flood a door."""
