"""Why a run in the sandbox must not become the rank that it stands for.

What the script keeps in its own variables no other machine has: where the run stands as the rank
stood they must be the same, or its steps would give other numbers.
"""

from trainmover.errors import StateMismatch
from trainmover.ids import Rank
from trainmover.state.script.variables import ADVICE, Difference, Variables, sentence
from trainmover.worker.data.loops import Loops
from trainmover.worker.join.lookout import Foresight
from trainmover.worker.standing import Unwind
from trainmover.worker.step.keeper import RankRecord


class Refusal:
    """Of one run in the sandbox. Main thread only.

    why  it must not become the rank, whoever runs it; "" if it may
    """

    def __init__(self, rank: Rank, variables: Variables, loops: Loops) -> None:
        self.why = ""
        self._rank = rank
        self._variables = variables
        self._loops = loops
        self._foresight = Foresight(variables, loops, self._own)

    def foresee(self, record: RankRecord | None) -> None:
        """Raises StateMismatch if this, the rank's newest record, shows that the run could never
        stand where the rank does: better now than when somebody depends on it."""
        if record is not None:
            self._refuse(self._foresight.differences(record))

    def check(self, record: RankRecord, *, at_boundary: bool) -> None:
        """At the fetch where the rank stood. Raises StateMismatch if a variable of the script is
        another here than there: no step must count that is made with it."""
        batches = self._loops.main.batches()
        ended = batches is not None and batches.at_end
        found = self._variables.differences(
            record.variables, self._own(), ended=ended, at_boundary=at_boundary
        )
        self._refuse(found)

    def _own(self) -> bytes:
        return self._variables.capture(full=True)

    def _refuse(self, differences: list[Difference]) -> None:
        if not differences:
            return
        if self.why:  # The script has caught it, and goes on.
            raise Unwind
        happened = sentence(self._rank, differences)
        self.why = f"{happened}: {ADVICE}"
        raise StateMismatch(
            happened,
            means="The script keeps them itself, so no other machine has them.",
            do=f"{ADVICE[0].upper()}{ADVICE[1:]}.",
        )
