# SPDX-License-Identifier: Apache-2.0
"""Of torch's distributed parts."""
