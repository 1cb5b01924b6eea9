# SPDX-License-Identifier: Apache-2.0
"""Who tells of what no counter of torch counts: aliases that are made, gradients that are read."""
