# SPDX-License-Identifier: Apache-2.0
"""The machines of a job: who comes, goes, is silent, comes back; what was said exactly once."""
