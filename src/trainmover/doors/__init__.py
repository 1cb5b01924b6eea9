"""How members of a job come to each other: listeners and diallers that speak the hello.

For event loops (`door.py`; `agent/dial.py`) and for threads (`doorway.py`, `dial.py`).
"""
