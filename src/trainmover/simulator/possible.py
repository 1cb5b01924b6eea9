# SPDX-License-Identifier: Apache-2.0
"""Which pairs of a state and an event can be at all, and why the others cannot.

What machines say comes in the order in which they said it, also over the next link if one breaks.
So whatever a rank says before it answers an `Interrupt`, or stands at a boundary, has come before
that: most of what cannot be, cannot be for this reason.
"""

MOVE = ("move bind", "move prepare", "move pause", "move switch")
RECOVERY = ("recovery waiting", "recovery drain", "recovery boundary", "recovery switch")
BACK = ("going back boundary", "going back switch")
JUDGED = ("recovery boundary", "recovery switch", *BACK)
"""Every survivor has said where it stood, and every machine that was there what it holds."""
AT_BOUNDARY = ("move switch", "recovery switch", "going back switch")
"""Every rank stands between two steps, or is a joiner."""

CHECKPOINTS = ("CheckpointPublished", "CheckpointFailed", "CheckpointFound", "Wrote")
RUNS = ("Warm", "Held", "SandboxFailed", "Parked", "Left")
CHANGES = ("VaultHeld", "Position", "Prepared", "AtBoundary", "Loaded", "Switched", "Unproven")
FIRST = ("Attached", "Recorded")
TRAINS = (
    "Committed", "Fingerprinted", "StepsChanged", "Stands", "Moves", "Finished", "WentOn",
    "BetweenSteps",
)  # fmt: skip
ENDS = ("Raised", "Interrupted", "Snapped", "Warned", "Stack", "Reached")

IMPOSSIBLE: tuple[tuple[str, tuple[str, ...], tuple[str, ...]], ...] = (
    (
        "nobody has a rank yet, nor a run, nor a checkpoint",
        ("gathering",),
        (*CHECKPOINTS, *RUNS, *CHANGES, *FIRST, *TRAINS, *ENDS, "StepsUnequal"),
    ),
    (
        "they are said while no member changes, and nothing else is under way",
        ("gathering", "starting", *MOVE, *RECOVERY, *BACK, "saving", "ending"),
        ("SlowSuspected", "SlowFound", "SlowMeasured"),
    ),
    (
        "everything starts again only before all first steps are recorded, and these come after",
        ("starting",),
        (*CHECKPOINTS, *RUNS, *CHANGES, "Reached"),
    ),
    (
        "members change only after all first steps are recorded",
        (*MOVE, *RECOVERY, *BACK),
        FIRST,
    ),
    (
        "all ranks said so before they were through with the script",
        ("ending",),
        (*FIRST, *TRAINS, "Raised"),
    ),
    (
        "no change is over before all that take part have said so",
        ("running",),
        ("Position", "Loaded"),
    ),
    (
        "a move begins after the first commit of all ranks in the epoch in force",
        MOVE,
        ("Position", "Committed"),
    ),
    (
        "nothing is taken and nobody switches before the switchover; the one before is over",
        ("move bind", "move prepare", "move pause"),
        ("Loaded", "Switched"),
    ),
    (
        "no move begins once a script has ended, and one that ends then is none any more",
        MOVE,
        ("WentOn",),
    ),
    (
        "survivors said so before they answered, and the verdict waits for all answers",
        JUDGED,
        (
            "StepsChanged",
            "Fingerprinted",
            "Finished",
            "Moves",
            "WentOn",
            "BetweenSteps",
        ),
    ),
    (
        "survivors said so before they stood at the boundary, or unwound, and who joins has no "
        "epoch before it goes",
        ("recovery switch", "going back switch"),
        ("Committed",),
    ),
    (
        "ranks said so before they stood at the boundary, where they do nothing",
        AT_BOUNDARY,
        (
            "AtBoundary",
            "Fingerprinted",
            "StepsChanged",
            "Finished",
            "Moves",
            "Stands",
            "WentOn",
            "BetweenSteps",
        ),
    ),
    (
        "only who takes the state of others says so, while all wait for it, or before it hears "
        "that this is overtaken",
        (
            "running",
            "move bind",
            "move prepare",
            "move pause",
            "recovery boundary",
            *BACK,
            "saving",
            "ending",
        ),
        ("Unproven",),
    ),
    (
        "who goes back stands at no boundary: it unwinds",
        ("going back boundary",),
        ("AtBoundary",),
    ),
)


def why_not(state: str, event: str) -> str:
    """Why the pair cannot be; "" if it can."""
    reasons = (why for why, states, events in IMPOSSIBLE if state in states and event in events)
    return next(reasons, "")
