"""Which seats share a machine. Equal letters are one host: shared memory; others speak TCP."""

PATTERNS = {"shm": "aaaaa", "tcp": "abcde", "pairs": "aabbc", "crossed": "ababa", "lone": "abbbb"}

# By name "<size>-<pattern>", without those that repeat another one at that size.
STAGES = {
    f"{size}-{name}": pattern[:size]
    for size, names in {
        1: ["shm"],
        2: ["shm", "tcp"],
        3: ["shm", "tcp", "pairs", "crossed"],
        4: ["shm", "tcp", "pairs", "crossed", "lone"],
        5: ["shm", "tcp", "pairs", "crossed", "lone"],
    }.items()
    for name, pattern in PATTERNS.items()
    if name in names
}


def on(*names: str) -> list[str]:
    """The named stages, checked."""
    assert set(names) <= STAGES.keys()
    return list(names)


def of_size(*sizes: int) -> list[str]:
    return [name for name in STAGES if int(name.split("-")[0]) in sizes]
