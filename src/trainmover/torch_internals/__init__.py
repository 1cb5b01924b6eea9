"""All that trainmover knows of torch's private names, in one room.

Each part says in `NEEDED` what it takes from which of torch's files; `check` looks for all of it as
a worker starts, in the sources of the torch that is installed, so that a torch that has renamed
something is refused with a sentence, whatever the script will use of it. No name is read with a
default: a rename must never pass in silence.
"""

from trainmover.torch_internals.check import check

__all__ = ["check"]
