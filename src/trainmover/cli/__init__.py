"""The command line: one file per verb, `main` only dispatches."""
