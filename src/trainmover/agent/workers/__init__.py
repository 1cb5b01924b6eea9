"""The worker processes of one machine: born, watched, listened to, ended."""
