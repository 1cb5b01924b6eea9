# SPDX-License-Identifier: Apache-2.0
"""`trainmover demo`: two runs, what is shown of them, and their comparison."""
