"""How soon is a failure seen, and is one ever seen that is none? See `__main__`."""
