# SPDX-License-Identifier: Apache-2.0
"""The environment a worker starts with: torchrun's, and a few words of our own. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass

from trainmover.protocol.messages import JobSpec
from trainmover.tls.files import TlsFiles

UNSET = ("RANK", "GROUP_RANK", "ROLE_RANK", "MASTER_ADDR", "MASTER_PORT")
"""Said by the worker itself, when it learns its slot, or by us below; never inherited."""

PULSE, STACKS, LAST_WORDS = "pulse", "stacks", "last_words"
"""Files in a worker's directory: that it executes Python, where its threads stood when asked, and
why it has ended itself.
"""


@dataclass(frozen=True)
class Setting:
    """What all workers of a machine share. Paths are absolute; the token itself is in its file.

    address  of this machine, as the others reach it
    torch    host:port of torch's store, as workers reach it
    sockets  folder where workers of one host meet
    interface  on which that address is; "" if it is not known
    """

    machine: str
    role: str
    token_file: str
    spec_file: str
    directory: str
    sockets: str
    address: str
    torch: str
    agent_pid: int
    tls: TlsFiles | None = None
    interface: str = ""


def worker_environment(
    inherited: Mapping[str, str],
    spec: JobSpec,
    setting: Setting,
    *,
    local_rank: int,
    restarts: int,
    control_fd: int,
) -> dict[str, str]:
    """Everything torchrun sets but the rank, plus TRAINMOVER_*."""
    store_host, _, store_port = setting.torch.rpartition(":")
    environment = {name: value for name, value in inherited.items() if name not in UNSET}
    environment.setdefault("OMP_NUM_THREADS", "1")
    environment.setdefault("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1")
    if spec.gpu_comm == "nccl" and setting.interface:  # NCCL would listen on every interface.
        environment.setdefault("NCCL_SOCKET_IFNAME", f"={setting.interface}")
    environment |= {
        "LOCAL_RANK": str(local_rank),
        "LOCAL_WORLD_SIZE": str(spec.nproc),
        "WORLD_SIZE": str(spec.world_size),
        "GROUP_WORLD_SIZE": str(spec.machines),
        "ROLE_NAME": setting.role,
        "ROLE_WORLD_SIZE": str(spec.world_size),
        "MASTER_ADDR": store_host,
        "MASTER_PORT": store_port,
        "PYTHONUNBUFFERED": "1",
        "TORCHELASTIC_RUN_ID": spec.run_id,
        "TORCHELASTIC_RESTART_COUNT": str(restarts),
        "TORCHELASTIC_MAX_RESTARTS": str(spec.restarts_max),
        "TORCHELASTIC_ERROR_FILE": f"{setting.directory}/{local_rank}/error.json",
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        "TORCHELASTIC_SIGNALS_TO_HANDLE": "SIGTERM,SIGINT,SIGHUP,SIGQUIT",
        "TRAINMOVER_RUN_ID": spec.run_id,
        "TRAINMOVER_MACHINE": setting.machine,
        "TRAINMOVER_CONTROL_FD": str(control_fd),
        "TRAINMOVER_TOKEN_FILE": setting.token_file,
        "TRAINMOVER_SPEC": setting.spec_file,
        "TRAINMOVER_AGENT_PID": str(setting.agent_pid),
        "TRAINMOVER_ADDRESS": setting.address,
        "TRAINMOVER_SOCKETS": setting.sockets,
        "TRAINMOVER_PULSE": f"{setting.directory}/{local_rank}/{PULSE}",
        "TRAINMOVER_STACKS": f"{setting.directory}/{local_rank}/{STACKS}",
        "TRAINMOVER_LAST_WORDS": f"{setting.directory}/{local_rank}/{LAST_WORDS}",
    }
    if spec.hash_seed:  # Also of a fork, which cannot change its own: for what it starts itself.
        environment["PYTHONHASHSEED"] = spec.hash_seed
    if setting.tls is not None:
        environment |= setting.tls.environment()
    return environment
