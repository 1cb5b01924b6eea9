"""What must always hold, one module for each; all are asked at every moment that concerns them."""

from trainmover.simulator.checkers.answers import Answers
from trainmover.simulator.checkers.bindings import Bindings
from trainmover.simulator.checkers.capacity import Capacity
from trainmover.simulator.checkers.checker import Checker
from trainmover.simulator.checkers.checkpoints import Checkpoints
from trainmover.simulator.checkers.commits import Commits
from trainmover.simulator.checkers.cordons import Cordons
from trainmover.simulator.checkers.cuts import Cuts
from trainmover.simulator.checkers.epochs import OneEpoch
from trainmover.simulator.checkers.fences import Fences
from trainmover.simulator.checkers.holders import Holders
from trainmover.simulator.checkers.incidents import Incidents
from trainmover.simulator.checkers.journaled import Journaled
from trainmover.simulator.checkers.leaving import Leaving
from trainmover.simulator.checkers.quarantine import Quarantine
from trainmover.simulator.checkers.racks import Racks
from trainmover.simulator.checkers.records import Records
from trainmover.simulator.checkers.replicas import Replicas
from trainmover.simulator.checkers.sizes import WorldSize
from trainmover.simulator.checkers.staying import Staying
from trainmover.simulator.checkers.verdicts import Verdicts
from trainmover.simulator.checkers.waits import Waits


def all_checkers() -> list[Checker]:
    """Fresh ones, for one world."""
    return [
        OneEpoch(),
        Commits(),
        Verdicts(),
        Holders(),
        WorldSize(),
        Journaled(),
        Incidents(),
        Bindings(),
        Fences(),
        Cuts(),
        Racks(),
        Replicas(),
        Quarantine(),
        Cordons(),
        Answers(),
        Checkpoints(),
        Leaving(),
        Waits(),
        Staying(),
        Capacity(),
        Records(),
    ]


__all__ = ["Checker", "all_checkers"]
