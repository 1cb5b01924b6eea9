# SPDX-License-Identifier: Apache-2.0
"""How members of a job come to each other: listeners and diallers that speak the hello.

For event loops (`listener.py`; `agent/dial.py`) and for threads (`listener.py`, `dial.py`).
"""
