"""A worker without torch or script: it says what a real one would, so host tests take milliseconds.

argv of the job: `block` steps are committed after every Go (or RunRank); then the rank stands in
the middle of the next step. It finishes when the file `finish` appears. `behave` is one of
    good, raise, crash, garbage, exit3, chatty, keeps (it says so when it is to keep what it told)
"""

import os
import select
import socket
import sys
import time
from pathlib import Path

import msgspec

from trainmover.ids import Epoch, Rank, Step
from trainmover.lifeline import die_with
from trainmover.listeners.dial import dial_in_tls
from trainmover.protocol import messages as m
from trainmover.protocol.framing import FrameReader, frame
from trainmover.state.vault import VaultClient
from trainmover.tls.files import TlsFiles
from trainmover.version import VERSION


class FakeWorker:
    def __init__(self) -> None:
        self.sock = socket.socket(fileno=int(os.environ["TRAINMOVER_CONTROL_FD"]))
        tls = TlsFiles.of_environment(os.environ)
        dial_in_tls(None if tls is None else tls.read())
        self.token = Path(os.environ["TRAINMOVER_TOKEN_FILE"]).read_bytes().strip()
        spec = Path(os.environ["TRAINMOVER_SPEC"]).read_bytes()
        self.spec = msgspec.msgpack.decode(spec, type=m.JobSpec)
        self.block = int(self.spec.argv[0])
        self.finish = Path(self.spec.argv[1])
        self.behave = self.spec.argv[2] if len(self.spec.argv) > 2 else "good"
        self.local = int(os.environ["LOCAL_RANK"])
        self.rank = Rank(-1)
        self.epoch = Epoch(0)
        self.committed = 0
        self.running = False
        self.joiner = False
        self.finished = False

    def say(self, fact: m.WorkerFact) -> None:
        self.sock.sendall(frame(m.encode(fact)))

    def run(self) -> None:
        address = "127.0.0.1:1"
        self.say(m.WorkerUp(pid=os.getpid(), address=address, torch="none", version=VERSION))
        reader = FrameReader()
        while True:
            ready, _, _ = select.select([self.sock], [], [], 0.005)
            if ready:
                data = self.sock.recv(65536)
                if not data:
                    return
                for payload in reader.feed(data):
                    self.obey(m.decode_order(payload))
            elif self.running and not self.finished and self.finish.exists():
                self.finished = True
                self.say(
                    m.Finished(
                        rank=self.rank, step=Step(self.committed), code=0, digest="d", attached=True
                    )
                )

    def obey(self, order: m.Order) -> None:
        match order:
            case m.RunRank():
                self.take_rank(order.slot, order.epoch)
                self.start(order.buddies)
            case m.WarmUp():
                print("shadow line", flush=True)
                rank = Rank(order.slot * self.spec.nproc + self.local)
                self.say(m.Warm(rank=rank, shadow_steps=3, trace="t", warm_ms=1))
            case m.Hold():
                rank = Rank(order.slot * self.spec.nproc + self.local)
                self.say(m.Held(rank=rank, trace="t", run_ms=1))
            case m.Bind():
                self.take_rank(order.slot, order.epoch)
                self.joiner = True
                self.say(m.Parked(rank=self.rank, epoch=order.epoch, trace="t", bind_ms=1))
            case m.Prepare():
                self.say(m.Prepared(rank=self.rank, epoch=order.epoch))
            case m.PauseAt():
                self.say(
                    m.AtBoundary(rank=self.rank, epoch=order.epoch, committed=Step(self.committed))
                )
            case m.Interrupt() if self.running:
                self.say(
                    m.Position(
                        rank=self.rank,
                        epoch=order.epoch,
                        committed=Step(self.committed),
                        gate=Step(0),
                    )
                )
            case m.Verdict():
                self.say(m.AtBoundary(rank=self.rank, epoch=order.epoch, committed=order.committed))
            case m.Switch() if self.joiner or self.running:
                self.switch(order)
            case m.Go():
                self.running, self.joiner, self.epoch = True, False, order.epoch
                self.commit(self.block, gap_us=60_000)
            case m.KeepTold(keep=keep) if self.behave == "keeps":
                self.say(m.Warned(rank=self.rank, text=f"keeps {keep}"))
            case m.Leave():
                self.running = self.joiner = False
                self.say(m.Left())
            case m.Exit():
                print("bye", end="", flush=True)
                sys.exit(0)

    def take_rank(self, slot: int, epoch: int) -> None:
        self.rank, self.epoch = Rank(slot * self.spec.nproc + self.local), Epoch(epoch)

    def start(self, buddies: dict[Rank, str]) -> None:
        self.running = True
        print(f"hello from rank {self.rank}", flush=True)
        self.misbehave()
        self.say(m.Attached(rank=self.rank))
        self.say(m.Recorded(rank=self.rank, step=Step(3), trace="t", digest="d", bytes=1))
        self.buddies = buddies
        self.commit(self.block, gap_us=None)

    def misbehave(self) -> None:
        match self.behave:
            case "raise" if self.rank == 1:
                error = "ValueError: planted"
                self.say(
                    m.Raised(rank=self.rank, step=Step(1), error=error, traceback=f"TB {error}")
                )
            case "crash" if self.rank == 1:
                os.kill(os.getpid(), 9)
            case "garbage" if self.rank == 1:
                self.sock.sendall(frame(b"\xc1garbage"))
            case "exit3":
                self.say(
                    m.Finished(rank=self.rank, step=Step(0), code=3, digest="", attached=False)
                )
            case "chatty":
                sys.stdout.write("x" * 50 + "\n" + ("y" * 50 + "\n") * 20_000 + "last")
                sys.stdout.flush()

    def commit(self, count: int, gap_us: int | None) -> None:
        rows = [
            m.Row(
                step=Step(self.committed + i + 1),
                at_us=time.time_ns() // 1000 + i * 1000,
                values={"loss": 1.0 / (self.committed + i + 1)},
            )
            for i in range(count)
        ]
        self.committed += count
        self.keep_record()
        self.say(
            m.Committed(
                rank=self.rank, epoch=self.epoch, rows=rows, first=True, gap_us=gap_us,
                median_us=10_000,
            )
        )  # fmt: skip

    def keep_record(self) -> None:
        if self.rank in self.buddies:
            vault = VaultClient(self.buddies[self.rank], self.token)
            vault.put_record(self.rank, self.committed + 1, True, b"record", epoch=self.epoch)
            vault.close()

    def switch(self, order: m.Switch) -> None:
        self.buddies = order.buddies
        if self.joiner:
            self.committed = order.committed
            certificate = m.Certificate(
                rank=self.rank, source_rank=order.sources[self.rank][0].rank, step=order.committed,
                epoch=order.epoch, source_digest="d", joiner_digest="d", trace="t", position="p",
                bytes=1, state_ms=1.0,
            )  # fmt: skip
            self.say(m.Loaded(rank=self.rank, epoch=order.epoch, certificate=certificate))
        if self.rank not in order.sources or self.joiner:
            self.say(m.Switched(rank=self.rank, epoch=order.epoch))


if __name__ == "__main__":
    die_with(int(os.environ["TRAINMOVER_AGENT_PID"]))
    FakeWorker().run()
