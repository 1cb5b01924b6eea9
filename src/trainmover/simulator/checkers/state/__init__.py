"""What is kept, where, and whether it is right."""
