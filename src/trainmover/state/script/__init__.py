# SPDX-License-Identifier: Apache-2.0
"""What a script keeps in its own variables: found, hashed, and compared with another process's."""
