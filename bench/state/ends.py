# SPDX-License-Identifier: Apache-2.0
"""Both ends of a transfer, each in a process of its own."""

import gc
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn

from trainmover.ids import Epoch, Rank, Step
from trainmover.listeners.dial import dial_in_tls
from trainmover.protocol.messages import Source, Switch
from trainmover.state.encode import decode, encode
from trainmover.state.proof.samples import Proof
from trainmover.state.tensor_bytes import view_bytes
from trainmover.state.tracked import Tracked
from trainmover.state.transfer import Direct, FetchReport, Offered, StateServer, fetch
from trainmover.state.transfer.fetching import Into
from trainmover.tls.files import TlsFiles
from trainmover.worker.join.early import KEY, Early, EarlySource
from trainmover.worker.join.taken import take
from trainmover.worker.step.keeper import Moment, RankRecord

TOKEN = b"bench state token"
EPOCH, RANK = Epoch(2), Rank(0)
MB = 1_000_000
_PARAMETER = 4 * 1024 * 1024  # elements
_PIECE = 1024 * 1024
_STEP_S = 0.02
_RECORD = RankRecord(Step(2), [], Moment(b"", {}))


class End:
    """One process; it can be source and joiner. Sizes are in bytes, times in seconds.

    device  where its state lies
    """

    def __init__(self, seat: int, device: str = "cpu") -> None:
        self._device = device
        self._tracked = Tracked()
        self._servers: list[StateServer] = []
        self._listener = socket.create_server(("127.0.0.1", 0))

    # --- our transfer -----------------------------------------------------------------------------

    def build(self, size: int, value: float) -> int:
        """A model of about that size, all of it touched. Of how many tensors."""
        self._tracked = Tracked()
        gc.collect()
        counts = [_PARAMETER] * (size // (4 * _PARAMETER))
        counts.append(size // 4 - sum(counts))
        parameters = [
            nn.Parameter(torch.full((count,), value, device=self._device)) for count in counts
        ]
        self._tracked.add("model", nn.ParameterList(parameters))
        self._early = Early(self._tracked, TOKEN)
        return len(parameters)

    def serve(self, bytes_s: float = 0) -> str:
        """Offer what was built, to those who then come. The address."""
        self.stop()
        return self._serve(StateServer(TOKEN, bytes_s=bytes_s))

    def serve_in_tls(self, files: TlsFiles) -> str:
        """The same to others, beside that. The address."""
        return self._serve(StateServer(TOKEN, tls=files.read()))

    def _serve(self, server: StateServer) -> str:
        self._servers.append(server)
        server.offer(str(EPOCH), self._offered)
        return server.address

    def dial_in_tls(self, files: TlsFiles | None) -> None:
        """Or without, from now on."""
        dial_in_tls(None if files is None else files.read())

    def stop(self) -> None:
        for server in self._servers:
            server.close()
        self._servers.clear()

    def close(self) -> None:
        self.stop()
        self._listener.close()

    def _offered(self) -> Offered:
        """As a rank offers its state to a joiner."""
        bulk, tensors = self._tracked.bulk_header()
        digest, hashes = self._tracked.replica_digest()
        header = encode({"bulk": bulk, "digest": digest})
        of_each = [hashes[path] for path in self._tracked.bulk_paths(bulk)]
        proof = Proof(digest, {}).to_bytes()
        return Offered(header, tensors, digest, of_each, proof=proof)

    # --- what does not change, before the pause ---------------------------------------------------

    def train(self, tensors: int) -> None:
        """Offer what nobody writes to, and write to the last tensors meanwhile, as steps do."""
        source, parameters = EarlySource(self._tracked, lambda: None), self._parameters()
        self._servers[0].offer(KEY, source.offered, anew=True)
        self._trains = threading.Event()
        self._training = threading.Thread(
            target=_train, args=(source, parameters[-tensors:], self._trains)
        )
        self._training.start()

    def stand(self) -> None:
        """The pause begins."""
        self._trains.set()
        self._training.join()

    def take_early(self, address: str) -> None:
        """While the source trains."""
        self._early = Early(self._tracked, TOKEN)
        self._early.take(address)

    # --- in the pause -----------------------------------------------------------------------------

    def bytes_only(self, addresses: list[str], streams: int) -> float:
        """Fetch, and nothing else: from the first chunk that can be asked for."""
        begun = [0.0]

        def into(header: bytes) -> list[torch.Tensor]:
            tensors = self._tracked.bulk_destinations(decode(header)["bulk"])
            begun[0] = time.perf_counter()
            return tensors

        self._fetch(addresses, streams, into)
        return time.perf_counter() - begun[0]

    def take(self, addresses: list[str]) -> tuple[float, int, int]:
        """All that a job's pause holds for state: both digests and the bytes between. Seconds, by
        how much memory rose above what the state itself takes, and the bytes that were sent."""
        before = _resident("VmRSS")
        Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
        begun = time.perf_counter()
        taken = take(
            _switch(addresses),
            RANK,
            self._tracked,
            token=TOKEN,
            known=_RECORD,
            early=self._early,
            direct=Direct(TOKEN, lambda: None),
            cancelled=threading.Event(),
            say=lambda fact: None,
            arrived=True,
        )
        took_s = time.perf_counter() - begun
        if taken.digest != taken.header["digest"]:
            raise ValueError("the joiner holds something else than its source")
        self._early = Early(self._tracked, TOKEN)
        return took_s, _resident("VmHWM") - before, taken.bytes

    def _fetch(self, addresses: list[str], streams: int, into: Into) -> FetchReport:
        return fetch(
            addresses,
            token=TOKEN,
            key=str(EPOCH),
            into=into,
            cancelled=threading.Event(),
            timeout_s=60,
            streams=streams,
        )

    def _parameters(self) -> list[nn.Parameter]:
        model = self._tracked["model"]
        assert isinstance(model, nn.Module)
        return list(model.parameters())

    # --- sockets alone ----------------------------------------------------------------------------

    def port(self) -> int:
        return int(self._listener.getsockname()[1])

    def send_raw(self, streams: int) -> None:
        """What was built, to as many connections, from where it lies."""
        links = [self._listener.accept()[0] for _ in range(streams)]
        for link in links:
            link.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"cubic")
        _each(_send, links, self._parts(streams))

    def take_raw(self, port: int, streams: int) -> float:
        """As much, to where it will lie."""
        links = [socket.create_connection(("127.0.0.1", port)) for _ in range(streams)]
        parts = self._parts(streams)
        begun = time.perf_counter()
        _each(_receive, links, parts)
        return time.perf_counter() - begun

    def _parts(self, count: int) -> list[list[memoryview]]:
        """The state's memory, in pieces, dealt out."""
        whole = [view_bytes(parameter) for parameter in self._parameters()]
        pieces = [v[at : at + _PIECE] for v in whole for at in range(0, len(v), _PIECE)]
        return [pieces[number::count] for number in range(count)]


def _train(source: EarlySource, parameters: list[nn.Parameter], over: threading.Event) -> None:
    while not over.is_set():
        source.look()
        with torch.no_grad():
            for parameter in parameters:
                parameter.add_(1.0)
        over.wait(_STEP_S)


def _switch(addresses: list[str]) -> Switch:
    sources = [Source(Rank(number), address) for number, address in enumerate(addresses)]
    step = Step(1)
    return Switch(epoch=EPOCH, committed=step, sources={RANK: sources}, records={}, buddies={})


def _send(link: socket.socket, pieces: list[memoryview]) -> None:
    with link:
        for piece in pieces:
            link.sendall(piece)
        link.recv(1)


def _receive(link: socket.socket, pieces: list[memoryview]) -> None:
    with link:
        for piece in pieces:
            left = piece
            while left:
                left = left[link.recv_into(left, 0, socket.MSG_WAITALL) :]


def _each(
    work: Callable[[socket.socket, list[memoryview]], None],
    links: list[socket.socket],
    parts: list[list[memoryview]],
) -> None:
    threads = [threading.Thread(target=work, args=pair) for pair in zip(links, parts, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _resident(field: str) -> int:
    """Bytes of this process in memory, now (VmRSS) or at most (VmHWM)."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024
    raise OSError(f"this kernel does not tell {field}")
