"""What people are told, and what they may expect."""
