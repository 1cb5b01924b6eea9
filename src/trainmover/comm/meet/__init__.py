# SPDX-License-Identifier: Apache-2.0
"""How the seats of all groups find each other for an epoch that is to come."""
