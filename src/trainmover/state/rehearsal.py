# SPDX-License-Identifier: Apache-2.0
"""Whether what a script tracks can be put into another process: tried in the sandbox, where nothing
is lost by it, and not when a rank's place is to be taken.

Modules and optimizers are torch's. Objects of the script's own have to take back what they gave,
and large ones must then give the same once more: by that a joiner is compared with its source.
"""

import torch
from torch import nn

from trainmover.errors import StateMismatch
from trainmover.state import encode
from trainmover.state.items import HasState
from trainmover.state.loading import give
from trainmover.state.placing import bulk_leaves, load_bulk
from trainmover.state.proof.digest import digest_of
from trainmover.state.tracked import Tracked

REFUSALS = (RuntimeError, ValueError, LookupError, TypeError, AttributeError)


def rehearse(tracked: Tracked) -> None:
    """Give every object of the script's own its own state. Raises StateMismatch, naming it."""
    _check_graphs(tracked)
    large = set(tracked.bulk_names())
    for name, obj in tracked.items():
        if isinstance(obj, nn.Module | torch.optim.Optimizer):
            continue
        try:
            if name in large:
                load_bulk(obj, *bulk_leaves(obj))
            else:
                give(name, obj, encode.encode(obj.state_dict()))
        except (*REFUSALS, StateMismatch) as error:
            why = error.happened if isinstance(error, StateMismatch) else str(error)
            raise StateMismatch(
                f"`{name}` does not take back the state that it gave: {why}",
                means="No standby could take over a rank with it.",
                do="Let load_state_dict() take whatever state_dict() gives.",
            ) from error
        if name in large and _digest(name, obj) != _digest(name, obj):
            raise StateMismatch(
                f"`{name}` gives another state each time that state_dict() is called.",
                means="Whether a standby holds what a rank held could not be told.",
                do="Leave out of state_dict() what is no state: the time, chance, counts of calls.",
            )


def _check_graphs(tracked: Tracked) -> None:
    if places := [place for modes in tracked.modes for place in modes.learning()]:
        raise StateMismatch(
            f"The DistributedDataParallel with static_graph=True ({places[0]}) has not learned its "
            "graph in the first steps, in which its model was not trained.",
            means="Nobody can be given it, so no standby can take over; the job trains on.",
            do="static_graph=False for a model that begins to train later.",
        )


def _digest(name: str, obj: HasState) -> str:
    return digest_of([(name, obj.state_dict())]).whole
