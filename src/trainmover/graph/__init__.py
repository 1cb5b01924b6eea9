# SPDX-License-Identifier: Apache-2.0
"""State as one object graph: what a script holds, taken at a fetch and restored in place."""
