"""`python tests/fuzz/make_corpus.py`: write the corpus anew.

corpus/DECODER/good-*     what it reads well
corpus/DECODER/*          bytes that once did harm

The tests spoil what is good: cut short, with bits flipped, with lengths that promise too much.
"""

import random
from collections.abc import Iterator
from pathlib import Path

from decoders import DECODERS, Decoder

CORPUS = Path(__file__).parent / "corpus"


def nested_extensions(depth: int) -> bytes:
    """A tuple in a list in a tuple in a list."""
    data = b"\x90"
    for _ in range(depth):
        data = b"\x91\xc9" + len(data).to_bytes(4, "big") + b"\x02" + data
    return data


DEEP = {
    "deep-arrays": b"\x91" * 5000,
    "deep-maps": b"\x81\xa1a" * 2000,
    "deep-json": b"[" * 5000,
    "deep-extensions": nested_extensions(1500),
}
HOSTILE = {
    "huge-array": b"\xdd\xff\xff\xff\xff",
    "huge-map": b"\xdf\xff\xff\xff\xff",
    "huge-bytes": b"\xc6\xff\xff\xff\xff",
    "huge-text": b"\xdb\xff\xff\xff\xff",
    "huge-extension": b"\xc9\xff\xff\xff\xff\x09",
    "huge-frame": b"\xff\xff\xff\xff",
    "empty": b"",
    "zeros": bytes(64),
}


ANYWHERE = HOSTILE | DEEP
"""What no decoder may be harmed by, by name."""


def spoilt(name: str, decoder: Decoder) -> Iterator[tuple[str, bytes]]:
    """Yield names and bytes: each of a decoder's real messages, spoilt in four ways."""
    dice = random.Random(name)
    for number, seed in enumerate(decoder.seeds):
        yield f"cut-{number}", seed[: dice.randrange(len(seed))]
        flipped = bytearray(seed)
        flipped[dice.randrange(len(seed))] ^= 1 << dice.randrange(8)
        yield f"flipped-{number}", decoder.sealed(bytes(flipped))
        middle = dice.randrange(len(seed))
        for what in ("huge-array", "huge-bytes"):
            put_in = seed[:middle] + HOSTILE[what] + seed[middle + 5 :]
            yield f"{what}-inside-{number}", decoder.sealed(put_in)


def main() -> None:
    """Files of other names stay: they were found and kept."""
    for name, decoder in DECODERS.items():
        folder = CORPUS / name
        folder.mkdir(parents=True, exist_ok=True)
        for number, seed in enumerate(decoder.seeds):
            (folder / f"good-{number}.bin").write_bytes(seed)


if __name__ == "__main__":
    main()
