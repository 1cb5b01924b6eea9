# SPDX-License-Identifier: Apache-2.0
"""Groups whose tensors of a device are carried by NVIDIA's NCCL."""
