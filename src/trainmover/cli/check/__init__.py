# SPDX-License-Identifier: Apache-2.0
"""`trainmover check`: processes that run the script, and what they have shown."""
