"""The command line: `verbs` has them all with their flags, `main` dispatches, a module carries out.

`run`, `watch`, `steer`, `report`, `demo` and `doctor` are folders of them; `client` asks a live run.
"""
