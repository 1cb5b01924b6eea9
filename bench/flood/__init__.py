"""Messages and steps of a job while strangers and viewers crowd its listeners."""
