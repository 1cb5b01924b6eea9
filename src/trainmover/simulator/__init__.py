# SPDX-License-Identifier: Apache-2.0
"""The real decisions in a fake world: time, network, machines, processes and disks as values."""
