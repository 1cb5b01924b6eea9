# SPDX-License-Identifier: Apache-2.0
"""The worker processes of one machine: born, watched, listened to, ended."""
