"""Several ranks on one GPU, each passing for a host of its own: right results, at a crawl.

NCCL refuses two ranks that are on one host and on one device. So each process says another host,
and they talk over loopback sockets: nothing that is measured so says anything of bandwidth.
"""

import os
from pathlib import Path

import pytest

ON_GPU = pytest.mark.skipif(not Path("/dev/nvidia0").exists(), reason="needs an NVIDIA GPU")

SETTINGS = {
    "NCCL_NET": "Socket",
    "NCCL_SOCKET_IFNAME": "lo",
    "NCCL_IB_DISABLE": "1",
    "NCCL_P2P_DISABLE": "1",
    "NCCL_SHM_DISABLE": "1",
    "NCCL_MNNVL_ENABLE": "0",
    "NCCL_NVLS_ENABLE": "0",
    "NCCL_RAS_ENABLE": "0",
    "NCCL_CUMEM_HOST_ENABLE": "0",
    "NCCL_ALGO": "Ring",
    "NCCL_PROTO": "Simple",
    "NCCL_MAX_NCHANNELS": "2",
}


def pass_for_a_host() -> None:
    """In each rank's process, before its first group is made."""
    os.environ.update(SETTINGS)
    os.environ["NCCL_HOSTID"] = f"one-gpu-{os.getpid()}"
