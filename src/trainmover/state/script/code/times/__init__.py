# SPDX-License-Identifier: Apache-2.0
"""What in a source tells the time, or the machine: nobody compares that between machines."""
