"""What the source and the bytecode of a script say of its variables."""
