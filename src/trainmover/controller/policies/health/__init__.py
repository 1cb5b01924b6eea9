# SPDX-License-Identifier: Apache-2.0
"""What machines can do, measured before they take ranks. Pure."""
