# SPDX-License-Identifier: Apache-2.0
"""`trainmover run`: its flags, and what it shows."""
