# SPDX-License-Identifier: Apache-2.0
"""What a controller leaves to its successor, and finds of the one before."""
