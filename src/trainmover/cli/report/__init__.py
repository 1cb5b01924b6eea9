# SPDX-License-Identifier: Apache-2.0
"""What a run was worth (`trainmover report`), and its incidents on one time axis (`trace`)."""
