"""What Dynamo looks into as it compiles a script."""

from typing import Any

NEEDED: dict[str, tuple[str, ...]] = {"_dynamo/trace_rules.py": ("def add",)}


def leave_out(package: str) -> None:
    """It never compiles that package's functions: they look at addresses, threads and bytes, which
    the tensors that it traces with have not. Where they are called the graph breaks, as at a call
    of torch's own groups."""
    from torch._dynamo import trace_rules

    rules: Any = trace_rules
    rules.add(package)
