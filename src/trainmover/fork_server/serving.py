# SPDX-License-Identifier: Apache-2.0
"""A fork server at work: one request after the other, until nobody can ask any more."""

import array
import os
import socket
import sys
from collections.abc import Sequence

import msgspec
from setproctitle import setproctitle

from trainmover.fork_server.forking import fork, hear, tell
from trainmover.fork_server.wire import PACKET_BYTES_MAX, Birth, Born
from trainmover.lifeline import die_with

DESCRIPTORS_MAX = 16


def serve(sock: socket.socket) -> Birth | None:
    """In each child, what it is to be, with its environment set up. In ours None, at last.

    Single-threaded, and with nothing on the stack but this: a child goes on from here like a
    process that has just been started.
    """
    while True:
        request = _receive(sock)
        if request is None:
            return None
        birth, descriptors = request
        try:
            in_child, pipe = fork()
        except OSError as error:
            _answer(sock, msgspec.msgpack.encode(Born(error=str(error))), descriptors)
            continue
        if not in_child:
            _answer(sock, hear(pipe), descriptors)
            continue
        sock.close()
        _settle(birth, descriptors, pipe)
        if not birth.asks:
            tell(pipe, Born([os.getpid()]))
            return birth
        in_its_fork_server, end = _part(pipe)
        if not in_its_fork_server:
            flag = ["--fork-server", str(end.detach())]
            return msgspec.structs.replace(birth, arguments=[*birth.arguments, *flag])
        sock = end


def _receive(sock: socket.socket) -> tuple[Birth, list[int]] | None:
    """The next request and the descriptors with it, ours to close; None at the end."""
    room = socket.CMSG_SPACE(DESCRIPTORS_MAX * array.array("i").itemsize)
    try:
        packet, held, _, _ = sock.recvmsg(PACKET_BYTES_MAX, room, socket.MSG_CMSG_CLOEXEC)
    except ConnectionResetError:
        return None
    if not packet:
        return None
    descriptors = array.array("i")
    for level, kind, data in held:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            descriptors.frombytes(data)
    return msgspec.msgpack.decode(packet, type=Birth), list(descriptors)


def _answer(sock: socket.socket, answer: bytes, descriptors: Sequence[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)
    sock.send(answer)


def _settle(birth: Birth, descriptors: Sequence[int], pipe: int) -> None:
    """Make this process what a started one would be; tells and ends if that cannot be."""
    os.setsid()
    for number, descriptor in enumerate(descriptors[:3]):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.environ["SPT_NOENV"] = "1"  # The kernel's copy of the environment says whose it is.
    setproctitle(birth.title)
    os.environ.clear()
    os.environ.update(birth.environment)
    for name, descriptor in zip(birth.variables, descriptors[3:], strict=True):
        os.environ[name] = str(descriptor)
    try:
        os.chdir(birth.cwd or ".")
    except OSError as error:
        tell(pipe, Born(error=str(error)))
        os._exit(1)
    if "numpy.random" in sys.modules:  # python draws its own numbers anew after a fork
        sys.modules["numpy.random"].seed()


def _part(pipe: int) -> tuple[bool, socket.socket]:
    """Fork its own fork server, which is its child and dies with it: (whether we are that one,
    the end of the socket between both that is ours)."""
    parent = os.getpid()
    theirs, ours = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    fork_server = os.fork()
    if fork_server == 0:
        os.close(pipe)
        theirs.close()
        die_with(parent)
        setproctitle("trainmover.fork_server")
        return True, ours
    ours.close()
    tell(pipe, Born([parent, fork_server]))
    return False, theirs
