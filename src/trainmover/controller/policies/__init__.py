# SPDX-License-Identifier: Apache-2.0
"""What is done without being asked: one folder for each idea. Pure."""
