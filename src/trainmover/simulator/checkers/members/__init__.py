# SPDX-License-Identifier: Apache-2.0
"""Who takes part: epochs, steps, who is chosen; and that what is known of them hangs together."""
