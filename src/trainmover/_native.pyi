"""The native communicator as Python sees it; built from `native/`.

Pointers are ints. Memory behind them is the caller's: it stays alive and unmoved until the call
returns, or until its ticket is done. Counts are elements, `dtype` and `op` are codes of DTYPES and
OPS. Calls release the GIL while they wait.

Sums are taken in the order of the seats: `tests/native/seat_order.py` says which bits come out.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

class NativeError(RuntimeError):
    """Root of what the library raises, next to ValueError for arguments that cannot be right."""

class Aborted(NativeError):
    """The epoch ended because this process was told so."""

class PeerLost(NativeError):
    """A seat is gone, or has given up."""

class TimedOut(NativeError):
    """A seat did not come, or did not do its part, within the time given."""

class OrderMismatch(NativeError):
    """Two seats made different calls in the same place; names both."""

class Failed(NativeError):
    """It could not be carried out in this process: no memory, no thread."""

class Refused(NativeError):
    """No right to it (token, a seat that was given to another process), or not yet."""

DTYPES: dict[str, int]
OPS: dict[str, int]

class Ticket:
    """An operation that runs in the background."""

    def done(self) -> bool: ...
    def wait(self, timeout_s: float) -> bool:
        """False when it is not done by then. Raises what the operation raised."""

    def error(self) -> str | None:
        """Why it failed; None while it runs and when it did not."""

    @property
    def source(self) -> int:
        """Seat that a received message came from."""

    def subscribe(self) -> int:
        """A number that `Endpoint.completed` will give once the operation is done, or now."""

class Group:
    """Numbered seats that stay while their members change. Made by `Endpoint.group`.

    Collectives with `background` return a ticket and run in a thread of the group; the others
    return None when they are done. All run in the order of the calls, which is the same on all
    seats. With `epoch`, a call raises Aborted unless that is the current one.
    """

    def card(self) -> bytes:
        """What this seat publishes, at most 392 bytes; the cards of all seats make a view."""

    def peers(self) -> list[int]:
        """By seat the number of the process that sits there; empty before the first epoch."""

    def prepare(self, epoch: int, cards: list[bytes], timeout_s: float) -> None:
        """Phase 1: have a link to every seat of the coming epoch, while the current one works.

        cards  by seat, the own one included. Blocks; idempotent for one epoch. Raises Aborted once
        discarded, TimedOut, PeerLost or Refused.
        """

    def discard(self, epoch: int) -> None:
        """The epoch will not come. Never blocks."""

    def switchover(self, epoch: int) -> dict[str, int]:
        """Phase 2: begin the prepared epoch. Local; touches only links to replaced seats.

        All seats of the old epoch have returned from their last collective before any calls this,
        or have been aborted. Returns `opened`, `kept` and `closed` links of this seat, `prepare_ns`
        and `switchover_ns`.
        """

    def abort(self, why: str) -> None:
        """End the current epoch: all who wait raise Aborted, and the other seats are told.

        When it returns, nothing touches the memory of any call any more. Takes milliseconds,
        whatever the peers do; the links stay.
        """

    def close(self) -> None: ...
    def set_timeout(self, arg: float, /) -> None:
        """Seconds that an operation may wait for another seat; 1800 at first."""

    @property
    def epoch(self) -> int | None: ...
    @property
    def broken(self) -> str | None:
        """Why the current epoch is over; None while it works."""

    @property
    def sequence(self) -> int:
        """Collectives that were started on this seat."""

    @property
    def seat(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def name(self) -> str: ...
    def all_reduce(
        self, data: int, count: int, dtype: int, op: int, background: bool, epoch: int = -1
    ) -> Ticket | None: ...
    def reduce(
        self,
        data: int,
        count: int,
        dtype: int,
        op: int,
        root: int,
        background: bool,
        epoch: int = -1,
    ) -> Ticket | None:
        """In place at the root; elsewhere `data` is only read."""

    def broadcast(
        self, data: int, count: int, dtype: int, root: int, background: bool, epoch: int = -1
    ) -> Ticket | None: ...
    def all_gather(
        self,
        input: int,
        outputs: Sequence[int],
        count: int,
        dtype: int,
        background: bool,
        epoch: int = -1,
    ) -> Ticket | None:
        """outputs  by seat, `count` elements each; the own one may be `input`"""

    def reduce_scatter(
        self,
        inputs: Sequence[int],
        output: int,
        count: int,
        dtype: int,
        op: int,
        background: bool,
        epoch: int = -1,
    ) -> Ticket | None:
        """inputs  by seat, `count` elements each; `output` may be the own one"""

    def all_to_all(
        self,
        inputs: Sequence[int],
        input_counts: Sequence[int],
        outputs: Sequence[int],
        output_counts: Sequence[int],
        dtype: int,
        background: bool,
        epoch: int = -1,
    ) -> Ticket | None:
        """By seat; counts may differ and be 0."""

    def gather(
        self,
        input: int,
        outputs: Sequence[int],
        count: int,
        dtype: int,
        root: int,
        background: bool,
        epoch: int = -1,
    ) -> Ticket | None:
        """outputs  by seat; empty but at the root"""

    def scatter(
        self,
        inputs: Sequence[int],
        output: int,
        count: int,
        dtype: int,
        root: int,
        background: bool,
        epoch: int = -1,
    ) -> Ticket | None:
        """inputs  by seat; empty but at the root"""

    def barrier(self, background: bool, epoch: int = -1) -> Ticket | None: ...
    def send(self, data: int, count: int, dtype: int, to: int, tag: int, epoch: int = -1) -> Ticket:
        """Independent of the collectives; matched by (sender, tag) in the order of sending."""

    def recv(
        self, data: int, count: int, dtype: int, source: int, tag: int, epoch: int = -1
    ) -> Ticket:
        """source  a seat, or -1 for whoever sends first"""

class Endpoint:
    """What a process has once: listeners, links and shared memory of all its groups.

    token    of the job; a peer proves that it knows it, and is shown that we do
    host     processes with equal names share memory, the others use TCP
    address  where to listen: an IP address of this host
    folder   where the socket for processes on this host lies; private to this user (0700). "": one
             made for it, below the temporary folder, and removed as the endpoint is closed
    libcrypto  path of the library that encrypts what goes to other hosts; "": nothing does
    strangers_max  connections without proof that it holds, at its two listeners together
    """

    def __init__(
        self,
        token: bytes,
        host: str,
        address: str = "127.0.0.1",
        folder: str = "",
        libcrypto: str = "",
        strangers_max: int = 512,
    ) -> None: ...
    @property
    def incarnation(self) -> int:
        """Number of this process, never 0."""

    @property
    def host(self) -> str: ...
    @property
    def address(self) -> str: ...
    @property
    def path(self) -> str:
        """Of the socket that processes on this host dial."""

    def group(self, name: str, seat: int, size: int) -> Group: ...
    def links(self) -> list[dict[str, Any]]:
        """Of each: `peer`, `kind` (shm or tcp), `opened_ns`, `inode`, bytes `sent`, `received`."""

    def stats(self) -> dict[str, Any]:
        """Counts since the beginning, and `arena_bytes` and `groups` now."""

    def completed(self, timeout_s: float) -> list[int]:
        """Numbers of subscribed tickets that are done; empty after the timeout.

        Raises Aborted once the endpoint is closed.
        """

    def close(self) -> None:
        """Abort all groups, say goodbye to all peers. Idempotent."""

def points() -> int:
    """Synchronisation points that this process has passed.

    This one and the next three are in an editable install only.
    """

def arm_point(countdown: int, signal: int) -> None:
    """Raise the signal in the thread that passes the `countdown`-th point from now. For tests."""

def delay_points(seed: int, most_us: int) -> None:
    """Hold threads up at points and locks, chosen by the seed, for up to that long; 0: no more.

    For tests.
    """

def repeat_codes(more: int) -> None:
    """Make and check the code of each frame so many times more. For measurements."""

def features() -> dict[str, Any]:
    """`isa` in use, `version` of the wire, `sanitizer` it was built with."""

def waited_ns() -> int:
    """For which this process has waited for other seats, in whichever thread, since it began."""

def waited_for() -> list[tuple[int, int]]:
    """For which processes on other hosts this one has waited since it was last asked: the number of
    the one that came last (`Group.peers`), and nanoseconds."""

def force_isa(name: str) -> bool:
    """Use this instruction set; False where this CPU has it not. Bits do not depend on it."""

def reduce(inputs: Sequence[int], output: int, count: int, dtype: int, op: int) -> None:
    """What a collective does with the contributions of all seats. For tests."""

def hmac_sha256(arg0: bytes, arg1: bytes, /) -> bytes: ...
def siphash(arg0: bytes, arg1: bytes, /) -> int:
    """SipHash-2-4 with a key of 16 bytes: the code of a frame's header. For tests."""

def parse_header(header: bytes, key: bytes, number: int) -> str:
    """Why these 64 bytes are not the header of that frame; empty if they are. For tests."""

class SealedLink:
    """A proved connection: see `trainmover.listeners.sealed_link`. What it raises: OSError,
    EOFError where the other end has closed it, ValueError with the length of a frame that is too
    long, or 0 where what came was not said."""

    def __init__(
        self, fd: int, says: bytes, said: int, hears: bytes, heard: int, bytes_max: int
    ) -> None:
        """fd: stays the caller's. says, hears: keys. said, heard: marks made with them."""

    def say(self, payload: bytes) -> None:
        """Returns at once: a thread sends it."""

    def hear(self) -> list[bytes]:
        """What has come; [] if nothing does within some ten milliseconds."""

    def close(self) -> None:
        """Whoever hears is woken."""

class Answers:
    """Of a list of objects to a few questions: see `trainmover.asked`. What is noted should be
    plain: a reference to it is kept, but for integers."""

    def __init__(self, *questions: Any) -> None: ...
    def note(self, objects: list[Any]) -> None:
        """What they answer now."""

    def same(self, objects: list[Any]) -> bool:
        """Whether as many objects answer what was noted; False if nothing was."""

    def noted(self, question: int) -> list[Any]:
        """What they have answered to one of the questions, counted from 0."""

class Pieces:
    """Of memory; whoever reads knows that it is still there."""

    def __init__(self, addresses: Sequence[int], sizes: Sequence[int]) -> None: ...
    def read(self) -> bytes:
        """One behind the other. The very object that was given last, if it is equal."""

class Stored:
    """An attribute of a list of objects: who has had nothing stored since is not asked for it."""

    def __init__(self, name: str) -> None: ...
    def note(self, objects: list[Any]) -> None:
        """Its values now."""

    def same(self, objects: list[Any]) -> bool:
        """Whether the very objects that were noted have the very values that they had."""

class Tables:
    """Dicts, and what was in them, which is kept."""

    def __init__(self, tables: list[Any]) -> None: ...
    def same(self) -> bool:
        """Whether all have the very keys and values that they had, in the same order."""

class Sizes:
    """Containers, which are kept, and how many entries each has."""

    def __init__(self, containers: list[Any], sizes: Sequence[int]) -> None: ...
    def same(self) -> bool:
        """Whether each has so many now."""

class Words:
    """A few words of many objects, read where they lie: see `torch_internals.memory`."""

    def __init__(
        self, leads: Sequence[int], places: Sequence[int], compared: Sequence[int], counts: bool
    ) -> None:
        """leads: addresses of the words that lead to the objects. places: the word that each begins
        with; the offsets of its storage, of its version and of what is counted and where data lies
        in those. compared: offset and size of what of itself is compared. counts: versions too."""

    def note(self) -> bool:
        """What they are now. False if some object has other parts than at first."""

    def same(self) -> bool:
        """Whether they are what was noted."""

    def addresses(self) -> list[int]:
        """Where the storages' data was, as noted."""

    def places(self) -> tuple[bytes, bytes]:
        """Return addresses and parts as noted, only to be compared."""

    def versions(self) -> list[int]:
        """As noted."""

    def parts(self) -> list[bytes]:
        """What of each object is compared, as noted."""

class WindowPlan:
    """Where the windows of objects of one layout lie, as paths: offsets of pointers, of the first
    one in the object, and last of the window. What a null pointer leads to is left out."""

    def __init__(self, places: list[tuple[list[int], int]], path: list[int], known: int) -> None:
        """places: paths, and sizes. path: to a word that objects of the layout have, `known`."""

class NodeTable:
    """Objects by number, as they were noted, and which may have changed since. What is compared by
    address is kept alive."""

    def __init__(self) -> None: ...
    def put(
        self,
        number: int,
        object: Any,
        parts: int,
        members: tuple[Any, ...],
        windows: list[tuple[int, int]] | WindowPlan,
        content: bytes | None,
    ) -> None:
        """Note an object. parts: a sum of 1, items of a dict, list, set or deque; 2, `__dict__` and
        what is in it; 4, a function's; 8, a cell's; 16, a class's. members: descriptors of pointers
        in the object. windows: addresses and sizes of memory; each is read only while those before
        it are unchanged. content: what the last window has; it is not copied. The caller keeps
        alive what an unchanged window leads to. Raises TypeError or ValueError for an object
        without such parts."""

    def remove(self, number: int) -> None:
        """Note no longer what has this number."""

    def changed(self) -> tuple[list[int], dict[int, bytes]]:
        """Return the numbers of objects that may be other than noted, ascending; and the content,
        by number, of those of which nothing else is other: it is noted."""

def same_value(one: Any, other: Any) -> bool:
    """Tell whether two values have the same types, order and bits: 1 is not True, 0.0 is not -0.0,
    nan is nan."""

def known_refs(
    values: list[Any],
    numbers: dict[int, int],
    plain: frozenset[type],
    edges: list[int],
    integers: list[int],
    address_min: int,
) -> list[Any]:
    """Return references to values: (value,) for one of a type in `plain`, ("", number) for an
    object that `numbers` has by its address, and None for others.

    edges, integers  get the numbers of these nodes, and the integers above `address_min`
    """

def are(objects: list[Any], others: list[Any]) -> bool:
    """Whether both have the very same objects, in the same order; none of them is touched."""

def given(question: Any, objects: list[Any]) -> bytes:
    """A byte for each: 1 where the answer is not None."""

def packed(tuple_code: int, value: object) -> bytes | None:
    """MessagePack of a value of None, bool, int, float, str, bytes, list, dict with str as keys and
    tuple, of those very types; a tuple is an extension of that type. None if it holds anything
    else, an integer or a text that MessagePack has not, or is nested some 50 deep."""

def table_of(set: set[Any] | frozenset[Any]) -> tuple[int, int, list[int], list[int]]:
    """Where in its table a set has its entries: how many places there are, where `pop` looks first,
    the entries' places, in order, and those from which one was taken."""

def fill(
    set: set[Any] | frozenset[Any],
    size: int,
    first: int,
    places: list[int],
    left: list[int],
    entries: list[Any],
) -> bool:
    """Have a set, or a new frozenset, hold these entries, no two equal, as `table_of` said. False:
    they cannot lie there, as in a process that hashes otherwise; then it is empty."""

def stands_for(type: type, object: object, address: int) -> bool:
    """Have it known that objects of this type begin with a pointer to what they stand for, as this
    one does, whose other half lies there; False if it does not. Only speed depends on it."""

class Turns:
    """Iterator of a rewritten `while`, which gives itself; see `loops/turns.py` for the words."""

    turn_count: int
    is_transaction: bool
    is_repeat: bool
    has_ended: bool
    def __iter__(self) -> Turns: ...
    def __next__(self) -> Turns: ...
    def again(self) -> bool: ...
    def end(self) -> None: ...

class Loop:
    """Iterator of a rewritten `for`; see `loops/turns.py` for the words."""

    turn_count: int
    is_transaction: bool
    is_repeat: bool
    has_ended: bool
    iterator: Iterator[Any]
    item: Any
    def __iter__(self) -> Loop: ...
    def __next__(self) -> Any: ...
    def again(self) -> bool: ...
    def end(self) -> None: ...

def iterate(iterable: Iterable[Any], /) -> Loop:
    """Make the iterator of a `for`. Raises TypeError for what cannot be iterated."""

def repeat() -> Turns:
    """Make the iterator of a `while`."""

def left(line: int, /) -> Any:
    """Tell that the script has left the loop with its header on this line."""

def set_hooks(
    begin: Callable[[Any], object] | None,
    turn: Callable[[Any], object] | None,
    left: Callable[[int], object] | None,
    retry: type[BaseException],
) -> None:
    """Call `begin` with each loop that begins, `turn` before each turn of a transaction, `left`
    with the line of each loop that the script leaves."""
