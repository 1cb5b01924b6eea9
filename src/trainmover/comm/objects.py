"""Objects that ranks sent each other between two steps, for a run that comes by later.

The job has made those calls long ago, and nobody keeps what they gave. What a script makes of an
object must not count: tracked state is taken on arrival, variables are compared there. But it must
be of the kind that the script expects. So of those that all ranks give, each is this rank's own
(`Silence`); of those that only others give, it is one that came at the same line before.
"""

import sys
from collections import defaultdict, deque

from torch import Tensor
from torch.distributed import distributed_c10d as c10d

from trainmover.comm.places import line_of_script
from trainmover.errors import StateMismatch

Pickled = tuple[Tensor, int]


class Objects:
    """Of one run in the sandbox, by line of the script. Main thread only."""

    def __init__(self) -> None:
        self._came: dict[str, deque[Pickled]] = defaultdict(deque)

    def came(self, pickled: Tensor, size: int) -> None:
        """One more, at this line."""
        self._came[line_of_script()].append((pickled.clone(), size))

    def once_more(self) -> Pickled:
        """One that came here, in their order. Raises StateMismatch if none did."""
        line = line_of_script()
        came = self._came.get(line)
        if not came:
            raise StateMismatch(
                f"Nobody keeps the object that another rank has sent at {line} before.",
                means="On its way to where a rank stood the script cannot do without one here.",
                do="Send tensors there, or use all_gather_object: then an own object can stand for "
                "those of others.",
            )
        came.rotate(-1)
        return came[-1]

    def forget(self) -> None:
        """The run is over."""
        self._came.clear()


def under_way() -> bool:
    """Whether it is a call of torch's for objects that asks: sizes in it are not set yet."""
    frame = sys._getframe(1)
    while frame.f_back is not None:
        code = frame.f_code
        if code.co_filename == c10d.__file__ and code.co_name.endswith("object_list"):
            return True
        frame = frame.f_back
    return False
