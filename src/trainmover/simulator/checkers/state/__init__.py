# SPDX-License-Identifier: Apache-2.0
"""What is kept, where, and whether it is right."""
