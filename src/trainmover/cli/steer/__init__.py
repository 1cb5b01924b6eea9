# SPDX-License-Identifier: Apache-2.0
"""Commands that change a live run: its machines, and its end."""
