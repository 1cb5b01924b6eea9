"""Pairs of a state and an event that can be and that no world of the tests has yet.

Each needs a message that is late by a path that nobody directs here: said in a change that was
overtaken, by a joiner that was released, by a disk that takes its time in two changes. `decide`
drops most for their epoch; that it has an answer to each is shown without a world
(`test_any_event`). Whoever finds a world for one takes it out.
"""

from trainmover.simulator.coverage import Pair, all_states

_OF_STATE = {
    "starting": "BetweenSteps Finished Moves Snapped Stands StepsChanged WentOn",
    "running": "AtBoundary CheckpointFound Parked Prepared Switched WentOn VaultHeld",
    "saving": "AtBoundary Attached BetweenSteps CheckpointFailed CheckpointFound Committed "
    "ContactChanged "
    "Fingerprinted Finished Held Left Loaded Moves Parked Prepared Recorded SandboxFailed "
    "Snapped Stands StepsChanged Switched Warm WentOn WorkerUp",
    "ending": "AtBoundary CheckpointFailed CheckpointFound CheckpointPublished Loaded Position "
    "Prepared Reached SandboxFailed Snapped Stack Switched VaultHeld Warned Wrote",
    "move bind": "AtBoundary CheckpointFailed CheckpointFound Left Moves Prepared Reached "
    "StepsChanged VaultHeld",
    "move prepare": "AtBoundary BetweenSteps CheckpointFailed CheckpointFound Left Moves Parked "
    "Reached SandboxFailed StepsChanged VaultHeld",
    "move pause": "BetweenSteps CheckpointFailed CheckpointFound Finished Left Moves Parked "
    "Prepared Reached SandboxFailed StepsChanged VaultHeld",
    "move switch": "CheckpointFailed CheckpointFound Interrupted Left Parked Prepared Reached "
    "SandboxFailed Stack Wrote VaultHeld",
    "recovery waiting": "AtBoundary BetweenSteps CheckpointFailed Committed Finished Held Loaded "
    "Moves Prepared Reached SandboxFailed StepsChanged Switched Unproven WentOn Wrote",
    "recovery drain": "CheckpointFailed CheckpointFound Finished Moves StepsChanged Unproven "
    "WentOn",
    "recovery boundary": "CheckpointFailed CheckpointFound Interrupted Loaded Position Reached "
    "Switched Wrote",
    "recovery switch": "CheckpointFailed CheckpointFound CheckpointPublished Held Interrupted "
    "Left Parked Position Prepared Reached SandboxFailed Stack Wrote",
    "going back boundary": "CheckpointFailed Committed Interrupted Loaded Position Prepared "
    "Reached Stands Switched Wrote",
    "going back switch": "CheckpointFailed CheckpointFound CheckpointPublished Examined Held "
    "Interrupted Left Parked Position Prepared Raised Reached SandboxFailed Stack Warm Warned "
    "Wrote VaultHeld",
}
_OF_ENGINES = ("MachinesGranted", "MachinesDenied", "EngineNoticed")
_WITH_ENGINES = {"gathering", "running", "move bind", "recovery waiting"}
"""States in which an engine's answers are reached by chance; they mean the same in all others."""
SELDOM: set[Pair] = {(state, event) for state, its in _OF_STATE.items() for event in its.split()}
SELDOM |= {(state, e) for state in {*all_states()} - _WITH_ENGINES for e in _OF_ENGINES}
