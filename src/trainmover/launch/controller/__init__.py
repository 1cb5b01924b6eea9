# SPDX-License-Identifier: Apache-2.0
"""The controller of a run as a process of its own, and others when it dies."""
