# SPDX-License-Identifier: Apache-2.0
"""Tensors of a device on their way into a snapshot, while the next step computes.

Of many gigabytes the copy takes longer than a step may wait. But parameters and optimizers' state
are written to by updates only, so all that comes before the next one may run meanwhile: the update
waits, and nothing else does. That nobody else has written to them is not taken for granted:

    version counters and addresses   as the copy begins, and as it ends
    hashes made on the device        those that the boundary was compared by, and new ones
    aliases past the counters        who makes one says so (`distrust`)

A copy that cannot be trusted is given up; it is of no one moment.
"""

import threading
from collections.abc import Callable, Mapping

from torch import Tensor

from trainmover.state import staging, tensor_bytes
from trainmover.state.proof.digest import hashes_of
from trainmover.torch_internals.tensors import Watched


class LateCopy:
    """One, begun as it is made.

    places  on the host, as many bytes for each
    hashes  of each, as it is to be
    done    told once, in another thread, why the copy is none; "": it is one
    """

    def __init__(
        self,
        tensors: Mapping[int, Tensor],
        places: Mapping[int, Tensor],
        hashes: Mapping[int, bytes],
        done: Callable[[str], None],
    ) -> None:
        self._tensors, self._places, self._hashes = tensors, places, hashes
        self._behind = staging.moments(tensors.values())
        self._watch = Watched(tensors.values())
        self._watch.note()
        self._distrusted = ""
        self._done = done
        self._over = threading.Event()
        threading.Thread(target=self._run, name="tm-late-copy", daemon=True).start()

    def wait(self) -> None:
        """On return the tensors may be written to."""
        self._over.wait()

    def distrust(self, why: str) -> None:
        """Somebody may write to them unseen."""
        self._distrusted = why

    def _run(self) -> None:
        try:
            self._copy()
            why = self._distrusted or self._changed()
        except RuntimeError as error:  # The device; the step will find that too.
            why = str(error).split("\n")[0]
        self._done(why)
        self._over.set()

    def _copy(self) -> None:
        for number, tensor in self._tensors.items():
            flat = tensor_bytes.flat_bytes(tensor)
            staging.copy_to_host(flat, self._places[number], self._behind.get(tensor.device))

    def _changed(self) -> str:
        now = dict(zip(self._tensors, hashes_of(list(self._tensors.values())), strict=True))
        if self._watch.same() and now == self._hashes:
            return ""
        return "it was written to before the update of the next step"
