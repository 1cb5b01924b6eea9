# SPDX-License-Identifier: Apache-2.0
"""What the wrappers of data parallel training keep to themselves from step to step."""
