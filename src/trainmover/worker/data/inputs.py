# SPDX-License-Identifier: Apache-2.0
"""A hash of what a step is called with, so that one made elsewhere is known to have the same.

Only what is plain counts: an object, as that whose method the step is, may keep anything.
"""

from typing import Any

import numpy
from torch import Tensor

from trainmover.torch_internals.trees import tree_flatten
from trainmover.worker.data.batch_hash import BatchHash

_PLAIN = (bool, int, float, complex, str, bytes, Tensor, numpy.ndarray, numpy.generic)


def hash_of(args: Any, kwargs: Any) -> int:
    """The same in every process.

    >>> hash_of((1, [2.0]), {}) == hash_of((1, [2.0], object()), {}) != hash_of((1, [3.0]), {})
    True
    """
    values, _ = tree_flatten((args, kwargs))
    return BatchHash([one for one in values if isinstance(one, _PLAIN)], whole=False).quick
