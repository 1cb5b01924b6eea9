# SPDX-License-Identifier: Apache-2.0
"""How soon is a failure seen, and is one ever seen that is none? See `__main__`."""
