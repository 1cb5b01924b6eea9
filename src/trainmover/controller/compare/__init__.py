# SPDX-License-Identifier: Apache-2.0
"""What replicas hold, compared: who would lose nothing, and who has diverged. Pure."""
