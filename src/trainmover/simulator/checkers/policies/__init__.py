# SPDX-License-Identifier: Apache-2.0
"""What is done without being asked: who is slow, about to fail, to go, unfit, or kept out."""
