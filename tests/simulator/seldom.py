"""Pairs of a state and an event that can be and that no world of the tests has yet.

Each needs a message that is late by a path that nobody directs here: said in a change that was
overtaken, by a joiner that was released, by a disk that takes its time in two changes. `decide`
drops most for their epoch; that it has an answer to each is shown without a world
(`test_any_event`). Whoever finds a world for one takes it out.
"""

from trainmover.simulator.coverage import Pair

_OF_STATE = {
    "starting": "StepsChanged Stands Moves Finished WentOn Snapped",
    "running": "CheckpointFound Parked AtBoundary Switched WentOn",
    "ending": "CheckpointFailed CheckpointFound VaultHeld Stack Reached Parked Prepared "
    "Position AtBoundary Loaded Switched Snapped CheckpointPublished Held "
    "MachineJoined Warned Wrote",
    "move bind": "CheckpointFound Reached Prepared AtBoundary Moves CheckpointFailed Left",
    "move prepare": "CheckpointFailed CheckpointFound Reached SandboxFailed Parked AtBoundary "
    "StepsChanged Moves Left CheckpointPublished Stands",
    "move pause": "CheckpointFailed CheckpointFound Reached Parked Prepared StepsChanged Finished "
    "Left Moves SandboxFailed",
    "move switch": "CheckpointFailed CheckpointFound Stack Reached SandboxFailed Parked Prepared "
    "Wrote Interrupted Held Left Warm",
    "recovery waiting": "CheckpointFailed Reached Held Prepared Moves WentOn AtBoundary Committed "
    "Fingerprinted Finished Loaded Snapped Stands StepsChanged Switched Wrote",
    "recovery drain": "CheckpointFailed WentOn CheckpointFound Committed Finished Moves Prepared "
    "StepsChanged",
    "recovery boundary": "CheckpointFound Reached Loaded Switched Wrote Interrupted",
    "recovery switch": "CheckpointFailed CheckpointFound Reached Parked Prepared Wrote Interrupted "
    "Stack",
    "going back boundary": "CheckpointFailed Loaded Switched Wrote Interrupted Prepared Reached "
    "Snapped Stands",
    "going back switch": "CheckpointPublished CheckpointFailed CheckpointFound Reached Warm Held "
    "SandboxFailed Parked Prepared Wrote Interrupted Left Raised Warned",
}
SELDOM: set[Pair] = {(state, event) for state, its in _OF_STATE.items() for event in its.split()}
