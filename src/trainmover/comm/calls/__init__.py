# SPDX-License-Identifier: Apache-2.0
"""What one call of a collective is: its arguments, its handle, and who waits for it."""
