# SPDX-License-Identifier: Apache-2.0
"""Where a frame of the script stands: what may still be read there, and what is under way."""
