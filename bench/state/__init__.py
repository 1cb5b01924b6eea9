# SPDX-License-Identifier: Apache-2.0
"""How fast state moves, and what keeping it safe costs."""
