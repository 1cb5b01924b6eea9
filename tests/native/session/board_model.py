"""A model of the protocol of native/src/session/board.hpp, and a search through all it can do.

Boards are words, seats are programs of single reads and writes of them, and every interleaving is
tried: exhaustively, for two or three seats and a few beats. What is in a slot is modelled in two
halves, so that a read can fall into a write. Words are read and written in the order in which they
stand there: that the compiler and the processor keep to it is the business of the atomics, and of
the thread sanitizer.

Three stories, of which a seat that is *late* was stopped anywhere while the others go on:

calm    all seats make some beats, change to the next epoch and make some more. All of it must work.
root    likewise, and one of them only shows: it reads no slot, as the root of a broadcast.
late    one seat is late; the other is aborted anywhere and goes on to the next epoch, in the same
        memory, with who has taken the late one's seat.
closed  one seat is late; the other closes the group anywhere, and the next group gets its memory.
        Its epoch and its beats have the same numbers.

What must hold: nothing that is not of that very group, epoch and beat is ever taken; in a calm
story nobody is taken for lost; and from wherever they are, all can still come to an end.

    python tests/native/session/board_model.py     the table that board_model.txt has
"""

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

FIRST = 2  # the beat of an epoch that nobody posts
NO_EPOCH = -1
# Words of a board. A slot has four: epoch, beat and the two halves of what is in it.
LIFE, POSTED_EPOCH, POSTED_BEAT, ENDED_EPOCH, ENDED_BEAT, SLOTS = range(6)
EPOCH, BEAT, HALVES = 0, 1, (2, 3)

Board = tuple[int, ...]
Boards = tuple[Board, ...]
# Where a seat is in its program, what it has read last, and whether it holds something wrong.
Seat = tuple[int, int, bool]
State = tuple[Boards, tuple[Seat, ...]]

FAULTS = {
    "": "as it is",
    "one slot": "a seat has one slot instead of two",
    "own pace": "a slot is filled again without waiting for all to have read it",
    "posted first": "a beat is posted before its slot is filled",
    "name kept": "a slot keeps its name while it is being filled",
    "no second look": "nothing is looked at again after it was read",
    "life once": "whose board it is is not looked at again",
    "epoch once": "which epoch a slot is of is not looked at again",
    "epoch first": "a place gets its epoch before its beat",
    "left behind": "what the group before has left in the memory stays while it gets a new owner",
}


class Wrong(Exception):
    """What must never be. Carries the way to it."""


@dataclass(frozen=True)
class Step:
    """One read or write of one word, or a wait in the model itself.

    act    of the boards and what the seat has read: what it has read then, the boards after it, and
           whether it goes on; None: it cannot yet
    back   where a seat that does not go on goes; None: it has lost the other one
    """

    said: str
    act: Callable[[State, Seat], tuple[Boards, int, bool, bool] | None]
    back: int | None = None


def put(boards: Boards, board: int, word: int, value: int) -> Boards:
    changed = (*boards[board][:word], value, *boards[board][word + 1 :])
    return (*boards[:board], changed, *boards[board + 1 :])


@dataclass
class Program:
    """What one seat does. Steps are added one after the other.

    aborts  from and to which step it may be told to go on with the next epoch
    patient  it never gives up: nobody is late
    """

    own: int
    fault: str
    patient: bool
    steps: list[Step] = field(default_factory=list)
    aborts: tuple[int, int] = (0, 0)

    @property
    def slots(self) -> int:
        return 1 if self.fault == "one slot" else 2

    def write(self, word: int, value: int, said: str) -> None:
        def act(state: State, seat: Seat) -> tuple[Boards, int, bool, bool]:
            return put(state[0], self.own, word, value), seat[1], seat[2], True

        self.steps.append(Step(f"writes {said}", act))

    def copy(self, word: int, to: int) -> None:
        def act(state: State, seat: Seat) -> tuple[Boards, int, bool, bool]:
            value = state[0][self.own][word]
            return put(state[0], self.own, to, value), seat[1], seat[2], True

        self.steps.append(Step("keeps where it ended", act))

    def check(
        self, board: int, word: int, good: Callable[[int, int], bool], said: str, back: int | None
    ) -> None:
        """Read a word. It is good, or the seat goes back."""

        def act(state: State, seat: Seat) -> tuple[Boards, int, bool, bool]:
            value = state[0][board][word]
            return state[0], value, seat[2], good(value, seat[1])

        self.steps.append(Step(f"reads {said} of {board}", act, back))

    def meet(self, others: list[int], places: list[int]) -> None:
        """In the model only: until the others are there too."""

        def act(state: State, seat: Seat) -> tuple[Boards, int, bool, bool] | None:
            if any(state[1][other][0] < place for other, place in zip(others, places, strict=True)):
                return None
            return state[0], 0, False, True

        self.steps.append(Step("has left its last call", act))

    # The protocol.

    def set_place(
        self, epoch_word: int, beat_word: int, epoch: int | None, beat: int | None
    ) -> None:
        """None: what is posted."""

        def beat_step() -> None:
            if beat is None:
                self.copy(POSTED_BEAT, beat_word)
            else:
                self.write(beat_word, beat, "a beat")

        def epoch_step() -> None:
            if epoch is None:
                self.copy(POSTED_EPOCH, epoch_word)
            else:
                self.write(epoch_word, epoch, "an epoch")

        if self.fault == "epoch first":
            epoch_step()
            beat_step()
            return
        self.write(epoch_word, NO_EPOCH, "no epoch")
        beat_step()
        epoch_step()

    def publish(self, life: int, epoch: int, *, first: bool) -> None:
        """first: in that group. Whatever the memory was before, it says nothing now."""
        if first and self.fault != "left behind":
            self.write(POSTED_EPOCH, NO_EPOCH, "nothing posted")
            self.write(ENDED_EPOCH, NO_EPOCH, "nothing ended")
            for slot in range(self.slots):
                self.write(SLOTS + slot * 4 + BEAT, 0, "no name")
        self.write(LIFE, life, "its life")
        self.set_place(ENDED_EPOCH, ENDED_BEAT, None, None)
        self.set_place(POSTED_EPOCH, POSTED_BEAT, epoch, FIRST)

    def disown(self) -> None:
        self.write(LIFE, 0, "no life")

    def wait(self, board: int, life: int, epoch: int, beat: int) -> None:
        """Until that beat, or a later one, is posted: in what is posted, or where it ended."""
        begin = len(self.steps)
        elsewhere, found = begin + 4, begin + 7

        def same(value: int, _: int) -> bool:
            return value == epoch

        self.check(board, POSTED_EPOCH, same, "the epoch posted", elsewhere)
        self.check(board, POSTED_BEAT, lambda value, _: value >= beat, "the beat posted", elsewhere)
        self.check(board, POSTED_EPOCH, same, "the epoch posted again", elsewhere)
        self._go(found)
        self.check(board, ENDED_EPOCH, same, "the epoch ended", begin)
        self.check(board, ENDED_BEAT, lambda value, _: value >= beat, "the beat ended", begin)
        self.check(board, ENDED_EPOCH, same, "the epoch ended again", begin)
        self.check(board, LIFE, lambda value, _: value == life, "whose it is", begin)

    def _go(self, place: int) -> None:
        def act(state: State, seat: Seat) -> tuple[Boards, int, bool, bool]:
            return state[0], seat[1], seat[2], False

        self.steps.append(Step("goes on", act, place))

    def read(self, board: int, beat: int, right: int) -> None:
        for half in HALVES:
            word = SLOTS + beat % self.slots * 4 + half

            def act(state: State, seat: Seat, word: int = word) -> tuple[Boards, int, bool, bool]:
                value = state[0][board][word]
                return state[0], 0, seat[2] or value != right, True

            self.steps.append(Step(f"reads a half of {board}", act))

    def verify(self, boards: list[int], life: int, epoch: int, beat: int) -> None:
        """What was read of these boards is taken from here on."""
        for board in boards if self.fault != "no second look" else []:
            at = SLOTS + beat % self.slots * 4
            self.check(board, at + BEAT, lambda value, _: value == beat, "the slot's beat", None)
            if self.fault != "epoch once":
                self.check(
                    board, at + EPOCH, lambda value, _: value == epoch, "the slot's epoch", None
                )
            if self.fault != "life once":
                self.check(board, LIFE, lambda value, _: value == life, "whose it is", None)

        def take(state: State, seat: Seat) -> tuple[Boards, int, bool, bool]:
            if seat[2]:
                raise Wrong(f"board {self.own} takes what is not beat {beat} of epoch {epoch}")
            return state[0], 0, False, True

        self.steps.append(Step("takes what it has read", take))

    def beats(
        self, others: list[int], life: int, epoch: int, count: int, *, reads: bool = True
    ) -> None:
        for beat in range(FIRST + 1, FIRST + 1 + count):
            if beat > FIRST + 1 and reads:
                self.verify(others, life, epoch, beat - 1)
            if self.fault != "own pace":
                for board in others:
                    self.wait(board, life, epoch, beat - 1)
            at = SLOTS + beat % self.slots * 4
            if self.fault == "posted first":
                self.write(POSTED_BEAT, beat, "its post")
            if self.fault != "name kept":
                self.write(at + BEAT, 0, "no name")
            for half in HALVES:
                self.write(at + half, content(life, epoch, beat), "a half")
            self.write(at + EPOCH, epoch, "its epoch's name")
            self.write(at + BEAT, beat, "its beat's name")
            if self.fault != "posted first":
                self.write(POSTED_BEAT, beat, "its post")
            for board in others if reads else []:
                self.wait(board, life, epoch, beat)
                self.read(board, beat, content(life, epoch, beat))
        if reads:
            self.verify(others, life, epoch, FIRST + count)


def content(life: int, epoch: int, beat: int) -> int:
    return (life * 10 + epoch) * 10 + beat


# The stories.


@dataclass(frozen=True)
class Story:
    programs: tuple[Program, ...]
    calm: bool


def calm(fault: str, seats: int, beats: int, *, root: bool = False) -> Story:
    programs = [Program(own, fault, patient=True) for own in range(seats)]
    others = {own: [other for other in range(seats) if other != own] for own in range(seats)}
    places: list[int] = []
    for own, program in enumerate(programs):
        program.publish(1, 1, first=True)
        program.beats(others[own], 1, 1, beats, reads=not (root and own == 0))
        places.append(len(program.steps))
    for own, program in enumerate(programs):
        program.meet(others[own], [places[other] for other in others[own]])
        program.publish(1, 2, first=False)
        program.beats(others[own], 1, 2, beats, reads=not (root and own == 0))
    return Story(tuple(programs), calm=True)


def passed_by(fault: str, beats: int, *, closes: bool) -> Story:
    """Board 0 goes on without the seat of board 1; in that one's stead comes board 2."""
    stays, late, new = (Program(own, fault, patient=False) for own in range(3))
    stays.publish(1, 1, first=True)
    stays.beats([1], 1, 1, beats)
    stays.aborts = (0, len(stays.steps))
    late.publish(1, 1, first=True)
    late.beats([0], 1, 1, beats)
    life, epoch = (2, 1) if closes else (1, 2)
    if closes:
        stays.disown()
    for program, other in ((stays, 2), (new, 0)):
        program.publish(life, epoch, first=closes or program is new)
        program.beats([other], life, epoch, beats)
    return Story((stays, late, new), calm=False)


STORIES: dict[str, Callable[[str], Story]] = {
    "calm, 2 seats, 2 x 3 beats": lambda fault: calm(fault, 2, 3),
    "calm, 3 seats, 2 x 1 beats": lambda fault: calm(fault, 3, 1),
    "root, 2 seats, 2 x 3 beats": lambda fault: calm(fault, 2, 3, root=True),
    "late, 1 beat": lambda fault: passed_by(fault, 1, closes=False),
    "closed, 1 beat": lambda fault: passed_by(fault, 1, closes=True),
}
LONGER: dict[str, Callable[[str], Story]] = {
    "late, 2 beats": lambda fault: passed_by(fault, 2, closes=False),
    "closed, 2 beats": lambda fault: passed_by(fault, 2, closes=True),
}


# The search.


def moves(story: Story, state: State) -> Iterator[tuple[State, str]]:
    """Every state that can come next, and what was done."""
    boards, seats = state
    for number, (program, seat) in enumerate(zip(story.programs, seats, strict=True)):
        place = seat[0]
        if place >= len(program.steps):
            continue
        if program.aborts[0] <= place < program.aborts[1]:
            yield (
                with_seat(boards, seats, number, (program.aborts[1], 0, False)),
                f"{number} is aborted",
            )
        step = program.steps[place]
        done = step.act(state, seat)
        if done is None:
            continue
        after, read, wrong, goes_on = done
        said = f"{number} {step.said}"
        if goes_on:
            yield with_seat(after, seats, number, (place + 1, read, wrong)), said
            continue
        if step.back is None and story.calm:
            raise Wrong(f"{said}, and takes it for lost")
        ends = step.back is None or (step.back <= place and not program.patient)
        if ends:  # It gives up; also one that only waits may, at any time.
            yield with_seat(boards, seats, number, (len(program.steps), 0, False)), f"{said}, ends"
        if step.back is not None:
            yield with_seat(boards, seats, number, (step.back, 0, wrong)), said


def with_seat(boards: Boards, seats: tuple[Seat, ...], number: int, seat: Seat) -> State:
    if seat[1]:
        seat = (seat[0], 0, seat[2])  # nothing is decided by what was read before
    return boards, (*seats[:number], seat, *seats[number + 1 :])


def search(story: Story) -> int:
    """How many states there are. Raises Wrong with the way to what must not be."""
    empty: Board = (0, 0, 0, 0, 0, *(0 for _ in range(2 * 4)))
    first: State = (
        tuple(empty for _ in story.programs),
        tuple((0, 0, False) for _ in story.programs),
    )
    numbers = {first: 0}
    came: list[tuple[int, str]] = [(0, "")]
    before: list[list[int]] = [[]]
    ended: list[int] = []
    todo = deque([first])
    while todo:
        state = todo.popleft()
        here = numbers[state]
        if all(seat[0] >= len(p.steps) for seat, p in zip(state[1], story.programs, strict=True)):
            ended.append(here)
        try:
            for after, said in moves(story, state):
                number = numbers.setdefault(after, len(came))
                if number == len(came):
                    came.append((here, said))
                    before.append([])
                    todo.append(after)
                before[number].append(here)
        except Wrong as wrong:
            raise Wrong(f"{wrong}\n{way(came, here)}") from None
    stuck = first_stuck(before, ended)
    if stuck is not None:
        raise Wrong(f"they wait for ever\n{way(came, stuck)}")
    return len(came)


def first_stuck(before: list[list[int]], ended: list[int]) -> int | None:
    """A state from which no end can be reached."""
    ends = bytearray(len(before))
    todo = list(ended)
    while todo:
        state = todo.pop()
        if ends[state]:
            continue
        ends[state] = 1
        todo += before[state]
    stuck = ends.find(0)
    return None if stuck < 0 else stuck


def way(came: list[tuple[int, str]], state: int) -> str:
    steps = []
    while state:
        state, said = came[state]
        steps.append(said)
    return "\n".join(reversed(steps))


def outcome(fault: str, stories: dict[str, Callable[[str], Story]]) -> str:
    """Of one fault, or of none: what each story comes to, until one finds something wrong."""
    lines = [f"{fault or 'the protocol'}: {FAULTS[fault]}"]
    for name, story in stories.items():
        try:
            lines.append(f"    {name}: {search(story(fault))} states")
        except Wrong as wrong:
            said, *steps = str(wrong).splitlines()
            lines.append(f"    {name}: WRONG after {len(steps)} steps: {said}")
            break
    return "\n".join(lines)


RESULT = Path(__file__).with_suffix(".txt")


def told() -> str:
    """What board_model.txt has."""
    return "\n".join(outcome(fault, STORIES) for fault in FAULTS) + "\n"


if __name__ == "__main__":
    RESULT.write_text(told())
    print(RESULT.read_text(), end="")
