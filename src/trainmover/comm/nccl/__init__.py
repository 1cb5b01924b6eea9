"""Groups whose tensors of a device are carried by NVIDIA's NCCL."""
