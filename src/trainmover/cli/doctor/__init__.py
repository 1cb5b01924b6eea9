# SPDX-License-Identifier: Apache-2.0
"""`trainmover doctor`: whether a job could run here, and what to mend."""
