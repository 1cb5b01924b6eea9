# SPDX-License-Identifier: Apache-2.0
"""What an optimizer has beside the state of its parameters, and what scales its gradients."""
