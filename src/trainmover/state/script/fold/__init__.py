"""What stands for values of particular kinds, where they are compared."""
