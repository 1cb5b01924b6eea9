# SPDX-License-Identifier: Apache-2.0
"""What stands for values of particular kinds, where they are compared."""
