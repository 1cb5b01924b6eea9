# SPDX-License-Identifier: Apache-2.0
"""Check of a script before it is trusted: what of it is carried, and do its steps repeat?"""
