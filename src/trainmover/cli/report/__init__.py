# SPDX-License-Identifier: Apache-2.0
"""Account of a run (`trainmover report`), and its incidents on one time axis (`trace`)."""
