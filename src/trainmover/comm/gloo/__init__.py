# SPDX-License-Identifier: Apache-2.0
"""A group carried by gloo, and the sockets that it opens."""
