"""Of torch's distributed parts."""
