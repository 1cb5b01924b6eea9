# SPDX-License-Identifier: Apache-2.0
"""Messages and steps of a job while strangers and viewers crowd its listeners."""
