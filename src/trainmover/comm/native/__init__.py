# SPDX-License-Identifier: Apache-2.0
"""Groups carried by the native communicator: c10d's calls in calls of the extension."""
