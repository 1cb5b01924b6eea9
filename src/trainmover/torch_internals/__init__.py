# SPDX-License-Identifier: Apache-2.0
"""All that trainmover knows of torch's private names, in one room.

`names` says what is taken from where. `check` looks for all of it, in the torch that is installed,
as this room is first imported, which is when a worker starts: so a torch that has renamed something
is refused with a sentence, whatever the script will use of it, and before another file of the room
takes a name that is not there. No name is read with a default: no rename may pass in silence.
"""

from trainmover.torch_internals.check import check

check()
