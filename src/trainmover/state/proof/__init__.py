# SPDX-License-Identifier: Apache-2.0
"""What shows that ranks hold the same, and which part of it differs if they do not."""
