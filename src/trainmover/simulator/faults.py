# SPDX-License-Identifier: Apache-2.0
"""What may go wrong in a world, and how often."""

from dataclasses import dataclass, field

SECOND = 1_000_000

NAMES = {
    "death": "a machine dies, and its sockets close",
    "power": "a machine dies, and nobody is told",
    "rack": "all machines of a rack die at once, and nobody is told",
    "freeze": "a machine stands still for a while, and returns",
    "crash": "a worker's process ends",
    "socket": "what joins a worker to its agent fails: it ends, and its last words are lost",
    "stop": "a worker's process is stopped, perhaps for good",
    "stuck": "a rank never comes out of the script's own code",
    "spins": "a rank goes round for ever once its groups drain",
    "between": "a rank is in a collective between two steps when its groups drain next",
    "garbage": "a script raises of what a collective has left that was cut short",
    "circles": "a run in the sandbox never comes to its first step",
    "flip": "a bit of a rank's state flips",
    "nan": "a step reports a number that is none",
    "recompile": "steps become others than those that were recorded",
    "reset": "the connection of a machine to the controller breaks",
    "trunk": "the connection breaks over which a machine carries what others say",
    "cut": "a machine and the controller do not reach each other, in one direction or both",
    "partition": "two machines do not reach each other, in one direction or both",
    "slow": "all that a machine sends arrives late",
    "straggle": "all that a machine does takes longer for a while",
    "cut_standby": "a machine without ranks loses the controller, both ways; all others reach it",
    "cut_survivor": "a machine with ranks loses the controller, both ways; its neighbours reach it",
    "narrow": "what two machines send each other takes longer for a while",
    "imagine": "a detector finds a machine slow or failing, or measures a move, and errs",
    "heavy": "a rank has more to do than the others, wherever it is",
    "controller": "the controller dies; its successor has the journal",
    "halt": "the controller's process is stopped for a while, and goes on",
    "reboot": "the controller dies, and its host comes back with another time",
    "clock": "somebody sets the clock of the controller's host, by an hour at most",
    "torn": "so it does, and the end of its journal is torn off",
    "store": "the key-value store where groups meet dies; there is another, empty one",
    "full": "the disk of checkpoints is full for a while",
    "disk_hang": "work on checkpoints of the controller's host hangs for a while",
    "writer_hang": "a rank never says that it has written its part of one checkpoint",
    "vault": "a machine's vault has no room for snapshots any more",
    "unfit": "the script cannot run somewhere for a while, or makes other steps there",
    "rot": "what is kept of a rank is damaged: its snapshots, or its file of a checkpoint",
    "unprepared": "a rank fails in phase 1 of the next move",
    "prepare_fails": "a machine will be taken away, and phase 1 of its moves fails for a while",
    "arrive": "a machine more comes",
    "move": "somebody asks for a move",
    "drill": "somebody asks for the death of a machine",
    "cordon": "somebody cordons a machine, and uncordons it after a while",
    "ask": "somebody asks for anything, be it possible or not",
    "examine": "somebody has a machine examined",
    "notice": "a machine says that it will be taken away, and is",
    "sign": "a machine's kernel says what it says before it fails; mostly it does",
    "roll": "somebody has all machines give up their ranks, one after the other",
    "place": "somebody gives ranks to other machines",
    "drain": "somebody drains some machines at once, and uncordons them after a while",
}
DISTURBS_LONG = {
    "partition",
    "cut",
    "freeze",
    "slow",
    "stuck",
    "spins",
    "stop",
    "controller",
    "reboot",
    "torn",
    "cut_survivor",
}
"""What may disturb a job more than once."""


@dataclass(frozen=True)
class Faults:
    """weights   name -> how likely, compared with others
    pause_us     from one fault to the next, in the mean
    together     how likely another follows at once
    unsettled_max  faults while no step is committed: with three in one step a job may end
    bites        name -> deadlines that its outage touches, and is drawn against; of one that is not
                 there outages have a usual length
    """

    weights: dict[str, int]
    pause_us: int = 600_000
    together: float = 0.25
    unsettled_max: int = 2
    bites: dict[str, tuple[str, ...]] = field(default_factory=dict)


EVERYTHING = Faults(
    {
        "death": 8,
        "power": 4,
        "rack": 1,
        "freeze": 2,
        "crash": 7,
        "socket": 1,
        "stop": 2,
        "stuck": 2,
        "spins": 1,
        "between": 1,
        "garbage": 1,
        "circles": 1,
        "flip": 3,
        "nan": 1,
        "recompile": 1,
        "reset": 4,
        "trunk": 2,
        "cut": 2,
        "partition": 1,
        "slow": 2,
        "controller": 3,
        "clock": 1,
        "store": 2,
        "full": 1,
        "vault": 1,
        "unprepared": 1,
        "arrive": 1,
        "move": 10,
        "drill": 3,
    }
)
"""All but cordons, and a torn journal: after that machines are told to begin anew, most of a job at
once."""


_OF_A_CONTROLLER = ("end_s", "spare_s", "probe_s", "all_stand_s", "leaves_s", "patience_s")
_OF_A_LINK = ("away_s", "spare_s", "patience_s")
_OF_A_MACHINE = ("held_up_s", "spare_s", "all_stand_s", "patience_s")
BITES = {
    "controller": _OF_A_CONTROLLER,
    "halt": _OF_A_CONTROLLER,
    "reboot": _OF_A_CONTROLLER,
    "cut": _OF_A_LINK,
    "cut_standby": _OF_A_LINK,
    "cut_survivor": _OF_A_LINK,
    "partition": ("held_up_s", "all_stand_s", "patience_s"),
    "freeze": _OF_A_MACHINE,
    "stop": ("stopped_s", "all_stand_s"),
    "full": ("spare_s",),
    "disk_hang": ("spare_s", "patience_s"),
    "prepare_fails": ("all_stand_s", "patience_s"),
}
"""Fault -> deadlines. Its outage lasts a tenth of one of them to ten times it (`Chance`)."""
BITING = Faults(
    {
        "controller": 6,
        "halt": 3,
        "reboot": 2,
        "stuck": 4,
        "stop": 4,
        "spins": 1,
        "cut": 3,
        "cut_standby": 3,
        "cut_survivor": 2,
        "partition": 2,
        "freeze": 3,
        "slow": 1,
        "death": 5,
        "power": 3,
        "rack": 1,
        "crash": 4,
        "socket": 1,
        "reset": 1,
        "store": 1,
        "full": 1,
        "disk_hang": 1,
        "writer_hang": 1,
        "prepare_fails": 1,
        "notice": 1,
        "arrive": 1,
        "clock": 1,
        "move": 4,
        "drill": 1,
    },
    pause_us=1_200_000,
    together=0.4,
    bites=BITES,
)
"""Outages on both sides of every deadline. `story.plan_of` draws the deadlines as well."""
MIXES = {"usual": EVERYTHING, "biting": BITING}


def only(names: list[str], like: Faults | None = None) -> Faults:
    """These and no others, equally likely; what they do is as in that mix."""
    bites = {} if like is None else like.bites
    return Faults(dict.fromkeys(names, 1), bites=bites)
