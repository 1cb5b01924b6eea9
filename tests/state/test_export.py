"""What another program reads of a checkpoint is what the job had."""

from pathlib import Path

import torch
import torch.distributed.checkpoint as dcp
from torch import nn

from trainmover.ids import Epoch, Rank, Step
from trainmover.protocol.checkpoint import state_name, writing_name
from trainmover.protocol.messages import Checkpoint, Written
from trainmover.server.checkpoints.folder import CheckpointFolder
from trainmover.state.encode import encode
from trainmover.state.export import export
from trainmover.state.snapshot import Snapshot
from trainmover.state.tracked import Tracked


def trained(seed: int) -> Tracked:
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(3, 5), nn.BatchNorm1d(5))
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.randn(4, 3)).sum().backward()
    optimizer.step()
    tracked = Tracked()
    tracked.add("model", model)
    tracked.add("optimizer", optimizer)
    return tracked


def block(tracked: Tracked, rank: int) -> bytes:
    bulk, tensors = tracked.bulk_header()
    small, digest = tracked.small_states(), tracked.replica_digest().whole
    header = encode({"bulk": bulk, "digest": digest, "record": b"", "small": small})
    snapshot = Snapshot.of(rank, 10, header, [tensor.detach() for tensor in tensors], None)
    snapshot.seal()
    return bytes(snapshot.block)


def publish(folder: Path, ranks: list[Tracked]) -> None:
    taken = CheckpointFolder.take(folder)
    writing = folder / writing_name(Step(10), Epoch(1))
    writing.mkdir()
    states = {}
    for rank, tracked in enumerate(ranks):
        (writing / state_name(Rank(rank))).write_bytes(block(tracked, rank))
        states[Rank(rank)] = [Written(f"step-{10:012d}/{state_name(Rank(rank))}", 0, "")]
    checkpoint = Checkpoint(
        folder="", run_id="r", step=Step(10), epoch=Epoch(1), argv=["x"], module=False, script="",
        machines=len(ranks), nproc=1, torch="", trainmover="", python="", states=states,
        records={}, compiled={}, recorded=[],
    )  # fmt: skip
    taken.publish(checkpoint, keep=1)
    taken.close()


def test_torch_reads_what_the_ranks_had(tmp_path: Path) -> None:
    ranks = [trained(1), trained(1), trained(2)]
    publish(tmp_path / "kept", ranks)
    assert export(tmp_path / "kept", f"step-{10:012d}", tmp_path / "out") == 2
    for prefix, tracked in (("", ranks[0]), ("rank2.", ranks[2])):
        model = tracked["model"].state_dict()
        read = {f"{prefix}model": {key: torch.zeros_like(v) for key, v in model.items()}}
        dcp.load(read, checkpoint_id=tmp_path / "out", no_dist=True)
        assert all(torch.equal(read[f"{prefix}model"][key], v) for key, v in model.items())
