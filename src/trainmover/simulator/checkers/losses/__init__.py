# SPDX-License-Identifier: Apache-2.0
"""Who is given up, and only then; and what there is to take his place."""
