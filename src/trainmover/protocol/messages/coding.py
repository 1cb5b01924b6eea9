# SPDX-License-Identifier: Apache-2.0
"""Messages as bytes: msgpack, read only as the kinds that this side may say. Pure."""

from typing import Any

import msgspec

from trainmover.protocol.malformed import MALFORMED, read_message
from trainmover.protocol.messages.agent_facts import (
    AgentFact,
    CommittedHere,
    Examined,
    Found,
    FromWorker,
    Heartbeat,
    Hello,
    Leaving,
    Output,
    Reached,
    Return,
    SaidHere,
    Sign,
    Stack,
    Trunk,
    Unwritten,
    VaultHeld,
    WorkerExited,
    WorkerState,
)
from trainmover.protocol.messages.agent_orders import (
    BeRelay,
    Die,
    EndWorker,
    Examine,
    FetchBehind,
    GoBehind,
    Heard,
    LookFor,
    Order,
    Probe,
    Refused,
    Resumed,
    Shutdown,
    StartWorkers,
    Welcome,
)
from trainmover.protocol.messages.root import Message
from trainmover.protocol.messages.worker_facts import (
    AtBoundary,
    Attached,
    BetweenSteps,
    Committed,
    Fingerprinted,
    Finished,
    Held,
    Interrupted,
    Joint,
    Left,
    Loaded,
    Moves,
    Parked,
    Position,
    Prepared,
    Raised,
    Recorded,
    SandboxFailed,
    Snapped,
    Stands,
    StepsChanged,
    Switched,
    Taking,
    Unproven,
    Warm,
    Warned,
    Watched,
    Weighed,
    WentOn,
    WorkerFact,
    WorkerUp,
    Wrote,
)
from trainmover.protocol.messages.worker_orders import (
    Bind,
    CutComplete,
    Discard,
    Ending,
    Exit,
    GiveSnapshots,
    Go,
    Hold,
    Interrupt,
    KeepSnapshots,
    KeepTold,
    Leave,
    PauseAt,
    Prepare,
    RunRank,
    StoreAt,
    Switch,
    Terminate,
    Verdict,
    WarmUp,
    WriteCheckpoint,
)

WORKER_FACTS = (
    WorkerUp | Attached | Recorded | Warm | Held | SandboxFailed | Parked | Prepared | Position
    | AtBoundary | Taking | Unproven | Loaded | Switched | Committed | Snapped | Wrote
    | Fingerprinted | StepsChanged | Weighed | Watched | Stands | Moves | Interrupted | Finished
    | WentOn | BetweenSteps | Raised | Left | Warned
)  # fmt: skip
AGENT_FACTS = (
    Hello | Return | Heartbeat | WorkerExited | VaultHeld | WorkerState | Stack | Reached | Found
    | Output | Unwritten | FromWorker | CommittedHere | SaidHere | Leaving | Examined
    | Sign | Trunk
)  # fmt: skip
WORKER_ORDERS = (
    RunRank | WarmUp | Hold | Bind | Prepare | Discard | PauseAt | KeepSnapshots | GiveSnapshots
    | CutComplete | WriteCheckpoint | Interrupt | Verdict | Switch | Go | Leave | Ending | Exit
    | StoreAt | KeepTold | Terminate
)  # fmt: skip
ORDERS = (
    Welcome | Refused | Resumed | Heard | StartWorkers | EndWorker | Probe | LookFor | Die
    | Shutdown | Examine | BeRelay | GoBehind | FetchBehind | WORKER_ORDERS
)  # fmt: skip

_encoder = msgspec.msgpack.Encoder()
_worker_facts: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(WORKER_FACTS)
_joint: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(Joint)
_agent_facts: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(AGENT_FACTS)
_orders: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(ORDERS)


def encode(message: Message) -> bytes:
    """Msgpack of one message, to be framed."""
    return _encoder.encode(message)


def decode_worker_fact(payload: bytes | msgspec.Raw) -> WorkerFact:
    """Raises ProtocolError if `payload` is none."""
    return read_message(_worker_facts, payload)  # type: ignore[no-any-return]


def joint_in(payload: bytes) -> Joint | None:
    """What a worker has said, if others say it at the same moment; whatever else it is, somebody
    else may read it."""
    try:
        return _joint.decode(payload)  # type: ignore[no-any-return]
    except MALFORMED:
        return None


def decode_agent_fact(payload: bytes) -> AgentFact:
    """Raises ProtocolError if `payload` is none."""
    return read_message(_agent_facts, payload)  # type: ignore[no-any-return]


def decode_order(payload: bytes) -> Order:
    """Raises ProtocolError if `payload` is none."""
    return read_message(_orders, payload)  # type: ignore[no-any-return]
