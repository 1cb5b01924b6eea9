# SPDX-License-Identifier: Apache-2.0
"""What must always hold, one module for each; all are asked at every moment that concerns them."""

from trainmover.simulator.checkers.apart import Apart
from trainmover.simulator.checkers.checker import Checker
from trainmover.simulator.checkers.downtime import DowntimeBound
from trainmover.simulator.checkers.frames import Frames
from trainmover.simulator.checkers.harmless import Harmless
from trainmover.simulator.checkers.heard import HeardOf
from trainmover.simulator.checkers.journaled import Journaled
from trainmover.simulator.checkers.limits import Limits
from trainmover.simulator.checkers.losses.blame import Blame
from trainmover.simulator.checkers.losses.capacity import Capacity
from trainmover.simulator.checkers.losses.healthy import NobodyHealthyIsEnded
from trainmover.simulator.checkers.losses.judged import Judged
from trainmover.simulator.checkers.losses.predictions import Predictions
from trainmover.simulator.checkers.losses.proofs import Proofs
from trainmover.simulator.checkers.losses.saved import WaitingWouldHaveSaved
from trainmover.simulator.checkers.losses.staying import Staying
from trainmover.simulator.checkers.members.bindings import Bindings
from trainmover.simulator.checkers.members.choices import Choices
from trainmover.simulator.checkers.members.commits import Commits
from trainmover.simulator.checkers.members.epochs import OneEpoch
from trainmover.simulator.checkers.members.fences import Fences
from trainmover.simulator.checkers.members.holders import Holders
from trainmover.simulator.checkers.members.leaving import Leaving
from trainmover.simulator.checkers.members.places import Places
from trainmover.simulator.checkers.members.readiest import Readiest
from trainmover.simulator.checkers.members.sizes import WorldSize
from trainmover.simulator.checkers.members.verdicts import Verdicts
from trainmover.simulator.checkers.members.versions import Versions
from trainmover.simulator.checkers.members.whole import Whole
from trainmover.simulator.checkers.members.words import Words
from trainmover.simulator.checkers.members.works import Works
from trainmover.simulator.checkers.numbers import Numbers
from trainmover.simulator.checkers.people.answers import Answers
from trainmover.simulator.checkers.people.briefs import Briefs
from trainmover.simulator.checkers.people.causes import Causes
from trainmover.simulator.checkers.people.figures import Figures
from trainmover.simulator.checkers.people.findings import Findings
from trainmover.simulator.checkers.people.incidents import Incidents
from trainmover.simulator.checkers.people.plans import Plans
from trainmover.simulator.checkers.people.reasons import Reasons
from trainmover.simulator.checkers.people.records import Records
from trainmover.simulator.checkers.people.refusals import Refusals
from trainmover.simulator.checkers.people.stops import Stops
from trainmover.simulator.checkers.policies.anomalies import Anomalies
from trainmover.simulator.checkers.policies.cordons import Cordons
from trainmover.simulator.checkers.policies.engines import Engines
from trainmover.simulator.checkers.policies.health import Health
from trainmover.simulator.checkers.policies.maintenance import Maintenance
from trainmover.simulator.checkers.policies.paces import Paces
from trainmover.simulator.checkers.policies.quarantine import Quarantine
from trainmover.simulator.checkers.policies.retries import Retries
from trainmover.simulator.checkers.policies.slowness import Slowness
from trainmover.simulator.checkers.policies.stragglers import Stragglers
from trainmover.simulator.checkers.policies.unbroken import Unbroken
from trainmover.simulator.checkers.policies.watched import Watched
from trainmover.simulator.checkers.settled import Settled
from trainmover.simulator.checkers.state.checkpoints import Checkpoints
from trainmover.simulator.checkers.state.cuts import Cuts
from trainmover.simulator.checkers.state.racks import Racks
from trainmover.simulator.checkers.state.replicas import Replicas
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
        Stragglers(),
        Answers(),
        Checkpoints(),
        Leaving(),
        Anomalies(),
        Maintenance(),
        Health(),
        Plans(),
        Waits(),
        Staying(),
        Capacity(),
        Records(),
        Versions(),
        Whole(),
        Words(),
        Figures(),
        Settled(),
        Harmless(),
        HeardOf(),
        Paces(),
        Watched(),
        Unbroken(),
        Choices(),
        Predictions(),
        Judged(),
        Proofs(),
        Stops(),
        Findings(),
        Causes(),
        Works(),
        Slowness(),
        Blame(),
        Frames(),
        Numbers(),
        Apart(),
        Refusals(),
        Places(),
        Readiest(),
        Reasons(),
        Briefs(),
        Limits(),
        NobodyHealthyIsEnded(),
        DowntimeBound(),
        WaitingWouldHaveSaved(),
        Retries(),
        Engines(),
    ]


__all__ = ["Checker", "all_checkers"]
