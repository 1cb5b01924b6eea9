"""A worker's environment is torchrun's."""

from dataclasses import replace

import msgspec

from trainmover.agent.workers.environment import Setting, worker_environment
from trainmover.protocol.messages import JobSpec

SPEC = JobSpec(run_id="r1", argv=["x"], machines=3, nproc=2, store="127.0.0.1:98", restarts_max=4)
SETTING = Setting(
    machine="m2", role="trainer", token_file="/t", spec_file="/s", directory="/d",
    sockets="/d/sockets", address="127.0.0.1", torch="127.0.0.1:99", agent_pid=7,
)  # fmt: skip
TORCHRUN = {
    "LOCAL_RANK",
    "WORLD_SIZE",
    "LOCAL_WORLD_SIZE",
    "GROUP_WORLD_SIZE",
    "ROLE_NAME",
    "ROLE_WORLD_SIZE",
    "MASTER_ADDR",
    "MASTER_PORT",
    "OMP_NUM_THREADS",
    "TORCHELASTIC_RUN_ID",
    "TORCHELASTIC_RESTART_COUNT",
    "TORCHELASTIC_MAX_RESTARTS",
    "TORCHELASTIC_ERROR_FILE",
    "TORCHELASTIC_USE_AGENT_STORE",
    "TORCHELASTIC_SIGNALS_TO_HANDLE",
    "TORCH_NCCL_ASYNC_ERROR_HANDLING",
}


def made(**inherited: str) -> dict[str, str]:
    return worker_environment(inherited, SPEC, SETTING, local_rank=1, restarts=2, control_fd=9)


def test_everything_torchrun_sets_is_set_but_the_rank() -> None:
    environment = made()
    assert environment.keys() >= TORCHRUN
    assert not {"RANK", "GROUP_RANK", "ROLE_RANK"} & environment.keys()
    assert environment["MASTER_ADDR"] + ":" + environment["MASTER_PORT"] == SETTING.torch
    assert environment["WORLD_SIZE"] == "6"
    assert environment["TORCHELASTIC_RESTART_COUNT"] == "2"


def test_what_is_inherited_stays_but_for_a_stale_rank() -> None:
    environment = made(RANK="3", MASTER_PORT="1", OMP_NUM_THREADS="8", HOME="/h")
    assert "RANK" not in environment
    assert environment["MASTER_PORT"] == "99"
    assert environment["OMP_NUM_THREADS"] == "8"
    assert environment["HOME"] == "/h"


def test_all_workers_of_a_job_hash_alike() -> None:
    assert "PYTHONHASHSEED" not in made()
    spec = msgspec.structs.replace(SPEC, hash_seed="7")
    workers = [
        worker_environment(inherited, spec, SETTING, local_rank=0, restarts=0, control_fd=9)
        for inherited in ({}, {"PYTHONHASHSEED": "5"})
    ]
    assert [worker["PYTHONHASHSEED"] for worker in workers] == ["7", "7"]
    assert made()["OMP_NUM_THREADS"] == "1"


def test_nccl_listens_where_the_machine_is_reached() -> None:
    spec = msgspec.structs.replace(SPEC, gpu_comm="nccl")
    setting = replace(SETTING, interface="eth1")

    def said(inherited: dict[str, str], spec: JobSpec) -> str | None:
        made = worker_environment(inherited, spec, setting, local_rank=0, restarts=0, control_fd=9)
        return made.get("NCCL_SOCKET_IFNAME")

    assert said({}, spec) == "=eth1"
    assert said({"NCCL_SOCKET_IFNAME": "ib"}, spec) == "ib"
    assert said({}, SPEC) is None
