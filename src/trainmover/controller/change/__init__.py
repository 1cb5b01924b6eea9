# SPDX-License-Identifier: Apache-2.0
"""A change of membership, from the loss or the wish to the first commit after it. Pure."""
