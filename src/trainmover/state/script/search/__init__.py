# SPDX-License-Identifier: Apache-2.0
"""Where the variables of a script are: looked for once for a place in it."""
