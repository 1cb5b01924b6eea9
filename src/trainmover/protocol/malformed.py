"""What reading bytes as a message may raise, when they are none. Pure."""

import msgspec

MALFORMED = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""Text that is no UTF-8, and values nested too deeply, have errors of their own."""
