"""What an agent does itself with orders that it hands out."""

import asyncio
from pathlib import Path

import msgspec

from trainmover.agent.config import AgentConfig
from trainmover.agent.run import Agent
from trainmover.agent.store_way import StoreWays
from trainmover.ids import Epoch, MachineId, Step
from trainmover.protocol import messages as m
from trainmover.state.vault import Vault, snapshot_name


def obeyed(tmp_path: Path, vault: Vault, order: m.WorkerOrder) -> None:
    config = AgentConfig(
        controller="", machine=MachineId("m1"), nproc=1, standby=False, token_file=tmp_path
    )

    async def obey() -> None:
        agent = Agent(config, vault, "127.0.0.1:1", tmp_path, StoreWays(b""), b"")
        agent._hand_out(m.encode(order), order)

    asyncio.run(obey())


def test_going_back_drops_the_snapshots_of_steps_that_are_undone(tmp_path: Path) -> None:
    vault = Vault(bytes_max=1000)
    for step in (10, 20, 30):
        vault.put_blob(snapshot_name(1, step), b"x")

    def held() -> list[int]:
        return [step for step in (10, 20, 30) if vault.get_blob(snapshot_name(1, step))]

    order = m.Switch(epoch=Epoch(2), committed=Step(20), sources={}, records={}, buddies={})
    obeyed(tmp_path, vault, order)
    assert held() == [10, 20, 30]
    back = m.Switch(
        epoch=Epoch(3), committed=Step(20), sources={}, records={}, buddies={}, back=True
    )
    obeyed(tmp_path, vault, back)
    assert held() == [10, 20]
    assert vault.bytes_held == 2


def test_workers_know_torchs_store_by_a_port_of_this_machine(tmp_path: Path) -> None:
    """Another one when the stores have moved; the same one when a controller says what is known."""
    config = AgentConfig(
        controller="", machine=MachineId("m1"), nproc=1, standby=False, token_file=tmp_path
    )

    async def obey() -> list[tuple[str, str]]:
        agent = Agent(config, Vault(1000), "127.0.0.1:1", tmp_path, StoreWays(b"t" * 32), b"t" * 32)
        told = []
        spec = m.JobSpec(run_id="r", argv=["x"], machines=1, store="10.0.0.5:7")
        moved = m.StoreAt(address="10.0.0.5:8")
        for order in (m.Welcome(spec=spec), m.Welcome(spec=spec), moved):
            agent._take(m.encode(order), order)
            kept = (tmp_path / "spec.msgpack").read_bytes()
            told.append((msgspec.msgpack.decode(kept, type=m.JobSpec).store, agent._crew.torch))
        return told

    (one, first), (two, same), (three, second) = asyncio.run(obey())
    assert (one, two, three) == ("10.0.0.5:7", "10.0.0.5:7", "10.0.0.5:8")
    assert first == same != second
    assert first.startswith("127.0.0.1:")
