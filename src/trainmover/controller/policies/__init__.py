"""What is done without being asked: one folder for each idea. Pure."""
