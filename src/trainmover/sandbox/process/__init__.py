# SPDX-License-Identifier: Apache-2.0
"""What one run of the script does to its process, found and put back."""
