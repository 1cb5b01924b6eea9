# SPDX-License-Identifier: Apache-2.0
"""Requests that wait for their answer, which may take as long as a move."""

import asyncio
import itertools

from trainmover.controller.effects import Answer


class Answers:
    """Each request is answered once; what comes after that is dropped."""

    def __init__(self, life: int) -> None:
        """life: of the controller; requests of an earlier one, that died, are none of this."""
        self._life = life
        self._waiting: dict[str, asyncio.Future[Answer]] = {}
        self._requests = itertools.count(1)

    def expect(self) -> tuple[str, asyncio.Future[Answer]]:
        """A fresh request, and its answer to come."""
        request = f"r{self._life}.{next(self._requests)}"
        future = asyncio.get_running_loop().create_future()
        self._waiting[request] = future
        return request, future

    def give(self, answer: Answer) -> None:
        """Answer a request."""
        waiting = self._waiting.pop(answer.request, None)
        if waiting is not None and not waiting.done():
            waiting.set_result(answer)

    def refuse_all(self, text: str) -> None:
        """Nobody is answered any more."""
        for request in list(self._waiting):
            self.give(Answer(request, ok=False, text=text))
