"""The command line: one file per verb, `main` only dispatches.

`run`, `watch`, `report` and `demo` are verbs with more than a file; `client` asks a live run.
"""
