# SPDX-License-Identifier: Apache-2.0
"""Claims, measured: one module a claim, each writes a dated result with hardware and commit."""
