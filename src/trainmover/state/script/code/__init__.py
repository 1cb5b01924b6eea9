# SPDX-License-Identifier: Apache-2.0
"""What the source and the bytecode of a script say of its variables."""
