# SPDX-License-Identifier: Apache-2.0
"""What people see of a job: sentences, news, figures, the status as one value."""
