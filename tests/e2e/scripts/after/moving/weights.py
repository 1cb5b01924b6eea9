"""What a loss counts, by how good the model has been."""

from typing import Protocol


class Progress(Protocol):
    best: float


def weight_of(progress: Progress) -> float:
    return 1 + progress.best
