# SPDX-License-Identifier: Apache-2.0
"""What a script keeps that is no plain value: its kinds, and what each is told by."""
