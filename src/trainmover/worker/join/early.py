# SPDX-License-Identifier: Apache-2.0
"""State that does not change is sent early: before the pause of a move, while the job trains.

Frozen layers, and whatever else no step writes to, need not wait for the pause. The rank that is to
give its state looks at two of its fetches, with an update in between, in which tensors a few
elements are as they were, and offers those; the joiner, which waits in the sandbox, takes them.
That all of them stay as they are is a guess. In the pause both hash what they hold, at the same
time, and whatever differs is sent with the rest. Where all there is is small, nothing is offered:
to wait for two steps would take longer than it saves.
"""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import torch
from torch import Tensor

from trainmover.errors import TrainmoverError
from trainmover.state import tensor_bytes
from trainmover.state.encode import decode, encode
from trainmover.state.proof.digest import hashes_of
from trainmover.state.tracked import Tracked
from trainmover.state.transfer import Offered, fetch

KEY = "early"
LOOKS_MAX = 8
"""For an update between the first look and the last: a job may accumulate gradients for long, or
make none at all."""
SAMPLE = 256
"""Elements that are looked at. An update changes nearly all. (Torch counts what is written to a
tensor, but not for the shards of a DTensor.)"""
SMALL_BYTES = 4 << 20
"""Of all state: it travels in a few milliseconds."""
PATIENCE_S = 30.0
"""With a rank whose steps are long: then the pause sends everything."""


class EarlySource:
    """A rank's side. `offered` is called in a thread of its state server, `look` by its main thread
    at each fetch. state_bytes: of all that there is, as far as that is known."""

    def __init__(self, tracked: Tracked, state_bytes: Callable[[], int | None]) -> None:
        self._tracked = tracked
        self._state_bytes = state_bytes
        self._changed = threading.Condition()
        self._asked = False
        self._over = False
        self._looks = 0
        self._first: dict[str, tuple[Tensor, Tensor]] = {}
        self._unwritten: dict[str, Tensor] | None = None

    def offered(self) -> Offered:
        """Tensors that nobody seems to write to, once that is known; none if it takes too long, or
        is not worth it."""
        known = self._state_bytes()
        if known is not None and known <= SMALL_BYTES:
            return Offered(encode([]), [], live=True)
        with self._changed:
            self._looks, self._unwritten, self._asked = 0, None, True
            self._changed.wait_for(lambda: self._over or self._unwritten is not None, PATIENCE_S)
            self._asked, self._first = False, {}
            found: dict[str, Tensor] = self._unwritten or {}
        header = [[path, tensor.nbytes] for path, tensor in found.items()]
        return Offered(encode(header), list(found.values()), live=True)

    def look(self) -> None:
        """Costs nothing unless somebody asks."""
        if not self._asked:
            return
        # Then the pause sends everything.
        seen = {} if self._tracked.is_gathered else in_place(self._tracked)
        with self._changed:
            if not self._looks:
                self._first = {path: (tensor, _sample(tensor)) for path, tensor in seen.items()}
            self._looks += 1
            unwritten = {
                path: tensor for path, tensor in seen.items() if self._is_old(path, tensor)
            }
            if not seen or len(unwritten) < len(seen) or self._looks == LOOKS_MAX:
                self._unwritten = unwritten
                self._changed.notify_all()

    def _is_old(self, path: str, tensor: Tensor) -> bool:
        """Whether it is what it was at the first look."""
        if path not in self._first:
            return False
        first, sample = self._first[path]
        return _is_same(tensor, first) and torch.equal(_sample(tensor), sample)

    def end(self) -> None:
        """The run of the script is over: nobody is to wait for a look."""
        with self._changed:
            self._over, self._first = True, {}
            self._changed.notify_all()


class Early:
    """A joiner's side: what it holds of the state before it takes the rest.

    `take` is called by one thread, whatever else by another.
    """

    def __init__(self, tracked: Tracked, token: bytes) -> None:
        self._tracked = tracked
        self._token = token
        self._changed = threading.Condition()
        self._cancelled = threading.Event()
        self._taking = False
        self._paths: set[str] = set()
        self._own: dict[str, Tensor] = {}
        self._hashing: Future[dict[str, bytes]] | None = None

    # --- before the pause -------------------------------------------------------------------------

    def take(self, address: str) -> None:
        """What the rank there does not write to. Returns when it is here, or is not wanted any
        more. Raises what `fetch` does; what had come by then counts, as far as it is right."""
        with self._changed:
            if self._cancelled.is_set():
                return
            self._taking = True
        try:
            with torch.no_grad():
                fetch(
                    [address],
                    token=self._token,
                    key=KEY,
                    into=self._into,
                    cancelled=self._cancelled,
                    timeout_s=PATIENCE_S + 1.0,
                )
        except TrainmoverError:
            if not self._cancelled.is_set():
                raise
        finally:
            with self._changed:
                self._taking = False
                self._changed.notify_all()

    def cancel(self) -> None:
        """It is not wanted any more."""
        self._cancelled.set()

    def _into(self, header: bytes) -> list[Tensor]:
        """The tensors of this process; for those that it lacks, or holds elsewhere, none."""
        own, offered = in_place(self._tracked), decode(header)
        self._paths = {path for path, nbytes in offered if path in own}
        return [
            own[path]
            if path in own and own[path].nbytes == nbytes
            else torch.empty(nbytes, dtype=torch.uint8, device="meta")
            for path, nbytes in offered
        ]

    # --- in it ------------------------------------------------------------------------------------

    def hash(self, pool: ThreadPoolExecutor) -> None:
        """Begin to hash what was taken early, as it is now: so nothing that has happened to it
        since goes unnoticed. On return no other thread writes to it."""
        self.cancel()
        with self._changed:
            self._changed.wait_for(lambda: not self._taking)
        live = _tensors(self._tracked) if self._paths else {}
        own = self._own = {path: live[path] for path in self._paths & live.keys()}
        self._hashing = pool.submit(
            lambda: dict(zip(own, hashes_of(list(own.values())), strict=True))
        )

    def hashes(self, paths: Sequence[str], tensors: Sequence[Tensor]) -> list[bytes]:
        """Of these, as far as they are what was hashed; b"" for others."""
        found = self._hashing.result() if self._hashing is not None else {}
        return [
            found[path] if path in found and _is_same(tensor, self._own[path]) else b""
            for path, tensor in zip(paths, tensors, strict=True)
        ]

    def note(self, paths: Sequence[str]) -> None:
        """These have come in the pause. A joiner that is not yet where its rank stood takes the
        state once more there: then they are here already."""
        self._paths = set(paths)
        self._own, self._hashing = {}, None


def in_place(tracked: Tracked) -> dict[str, Tensor]:
    """Shared bulk state by path, where an object hands out the memory that it works with."""
    first, second = _tensors(tracked), _tensors(tracked)
    return {
        path: tensor
        for path, tensor in first.items()
        if path in second and _is_same(tensor, second[path])
    }


def _tensors(tracked: Tracked) -> dict[str, Tensor]:
    header, tensors = tracked.bulk_header()
    return dict(zip(tracked.bulk_paths(header), tensors, strict=True))


def _is_same(one: Tensor, other: Tensor) -> bool:
    """Whether both are the same memory, seen in the same way; one of them is held meanwhile."""
    return (
        one.data_ptr() == other.data_ptr()
        and one.device == other.device
        and one.shape == other.shape
        and one.dtype == other.dtype
        and one.stride() == other.stride()
    )


def _sample(tensor: Tensor) -> Tensor:
    """Bytes of some elements, spread over it."""
    if not tensor.numel() or not tensor.dim():
        return tensor_bytes.flat_bytes(tensor).clone()
    spread = torch.linspace(0, 1, SAMPLE, dtype=torch.float64)
    places = tuple((spread * (extent - 1)).long() for extent in tensor.shape)
    return tensor_bytes.flat_bytes(tensor[places])
