"""A module with much in memory, in small pages."""

held = [bytes(3000) for _ in range(12_000)]
