# SPDX-License-Identifier: Apache-2.0
"""What machines say over the connection of another: the relay's part, and the machine's."""
