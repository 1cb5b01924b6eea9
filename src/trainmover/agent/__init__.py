# SPDX-License-Identifier: Apache-2.0
"""One per machine: starts and watches the workers, keeps host-memory copies, relays."""
