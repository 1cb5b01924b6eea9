# SPDX-License-Identifier: Apache-2.0
"""What people are told, and what they may expect."""
