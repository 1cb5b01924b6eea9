# SPDX-License-Identifier: Apache-2.0
"""Engines that start a job's machines: adapters between the controller's API and a scheduler."""
