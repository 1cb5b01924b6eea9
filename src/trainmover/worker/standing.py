"""Where a rank stands and what it was told, under one lock.

The control thread writes orders in, the main thread waits on them. Everything that reads "no newer
epoch was ordered" and then acts (passes the gate, says a position) does both under `changed`:
that one rule is what makes the controller's verdict binding. Who waits may hold `changed` already,
and then acts on what it got before anything else can change.
"""

import threading
from dataclasses import dataclass, field

from trainmover.ids import Epoch, Step
from trainmover.protocol.messages import Switch, Verdict

NONE = Epoch(0)


class Unwind(BaseException):
    """This run of the script is over: the rank lives elsewhere, or the sandbox has seen enough.

    Not an Exception: a script's `except Exception` lets it pass.
    """


@dataclass
class Standing:
    """Guarded by `changed`.

    live        whether this worker holds its rank (a joiner only from `Go` on)
    epoch       membership in force here
    ordered     newest epoch an Interrupt spoke of; greater than `epoch` while one is pending
    committed   last step whose update is applied, or is bound to be
    gate        step in whose gate the rank stands with its record safe; 0: none
    switched    epoch whose members this rank has exchanged: `Go` puts it in force
    recalled    other work waits for this process: a run that is only held unwinds
    unheard     no controller hears what is told
    pause_asked epoch whose pause flag is raised at the next gate
    pause_at    epoch whose pause was agreed at a gate: stop at the next fetch
    cut_at      step after which all ranks take a snapshot, as agreed at its gate
    """

    changed: threading.Condition = field(default_factory=threading.Condition)
    live: bool = False
    epoch: Epoch = NONE
    ordered: Epoch = NONE
    committed: Step = Step(0)
    gate: Step = Step(0)
    verdict: Verdict | None = None
    switch: Switch | None = None
    switched: Epoch = NONE
    leave: Epoch = NONE
    discarded: Epoch = NONE
    recalled: bool = False
    unheard: bool = False
    pause_asked: Epoch = NONE
    pause_at: Epoch = NONE
    cut_at: Step = Step(0)
    ending: Step | None = None
    exit: bool = False

    def go(self, epoch: Epoch) -> None:
        """Put an epoch in force, unless a newer one was ordered. Called under `changed`.

        Here and not by the main thread: from this moment on the controller counts on the rank's
        position, and an `Interrupt` may come before the main thread wakes.
        """
        if epoch == self.switched and epoch >= self.ordered:
            self.epoch, self.live, self.cut_at = epoch, True, Step(0)

    @property
    def pending(self) -> bool:
        """Whether a newer epoch was ordered than the one in force."""
        return self.ordered > self.epoch

    @property
    def paused(self) -> bool:
        """Whether a pause was agreed and not taken back."""
        return self.pause_at > max(self.epoch, self.discarded)

    @property
    def pause_flag(self) -> Epoch:
        """What to raise at the next gate; 0: nothing."""
        return self.pause_asked if self.pause_asked > max(self.epoch, self.discarded) else NONE

    @property
    def ordered_verdict(self) -> Verdict | None:
        """The verdict of the newest interruption, once it is out. Called under `changed`."""
        verdict = self.verdict
        out = self.pending and verdict is not None and verdict.epoch == self.ordered
        return verdict if out else None

    @property
    def goes_back(self) -> bool:
        """Whether all ranks leave instead of a verdict, to run the script again from a cut."""
        return self.pending and self.leave >= self.ordered

    def await_verdict(self) -> Verdict:
        """The controller's word on the interruption under way or coming. Raises Unwind."""
        with self.changed:
            while (verdict := self.ordered_verdict) is None:
                if self.goes_back:
                    raise Unwind
                self.changed.wait()
            return verdict

    def await_switch(self, epoch: Epoch) -> Switch | None:
        """The order to switch; None if a newer epoch came first or the pause was taken back."""
        with self.changed:
            while True:
                if self.leave >= epoch or self.exit:
                    raise Unwind
                if self.ordered > epoch or self.discarded >= epoch:
                    return None
                if self.switch is not None and self.switch.epoch == epoch:
                    return self.switch
                self.changed.wait()

    def await_go(self, epoch: Epoch) -> bool:
        """Whether the epoch is in force now; False if a newer one was ordered.

        Raises Unwind for a leaver, also if a newer epoch was ordered right after it was told: that
        one is not about it any more.
        """
        with self.changed:
            while self.epoch < epoch:
                if self.leave >= epoch or self.exit:
                    raise Unwind
                if self.ordered > epoch:
                    return False
                self.changed.wait()
            return self.epoch == epoch

    def await_exit(self) -> None:
        """Nothing is left to do but to be told so."""
        with self.changed:
            while not self.exit:
                self.changed.wait()
