# SPDX-License-Identifier: Apache-2.0
"""Where processes run, and what is between them: machines, network, the controller, its disk."""
