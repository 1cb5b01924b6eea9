# SPDX-License-Identifier: Apache-2.0
"""The one version string. Both ends of a control link must have the same."""

VERSION = "0.1.0"
