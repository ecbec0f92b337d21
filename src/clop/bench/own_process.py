"""What is timed takes turns in processes of its own: none has another's memory, threads or settings, and between its
turns it waits, so that none disturbs another."""

import multiprocessing
from collections.abc import Callable
from typing import Any, Self

import torch

from clop.errors import UsageError

Turn = Callable[[], Any]
"""Does some work and returns a report on it."""


class OwnProcess:
    """A new process that takes a turn on request.

    Args:
        name: Name for messages.
        body: Called in that process with a function that takes the :data:`Turn` and returns after the last one.
        threads: Number of threads torch may use in that process.
    """

    def __init__(self, name: str, body: Callable[["TakeTurns"], None], threads: int) -> None:
        self.name = name
        context = multiprocessing.get_context("spawn")  # a fork would share our memory settings
        self._pipe, other = context.Pipe()
        self._process = context.Process(target=_run, args=(body, TakeTurns(other), threads))
        self._process.start()
        other.close()  # so that it is closed when that process has ended
        self._answer()  # it is ready

    def turn(self) -> Any:
        """What its turn returned."""
        self._pipe.send(None)
        return self._answer()

    def _answer(self) -> Any:
        try:
            return self._pipe.recv()
        except EOFError:
            raise UsageError(f"{self.name} has ended; its message is above") from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._pipe.close()  # the end of its turns
        self._process.join(timeout=20)
        self._process.kill()
        self._process.join()


class TakeTurns:
    """Takes turns until the other side closes the pipe."""

    def __init__(self, pipe: Any) -> None:
        self._pipe = pipe

    def __call__(self, turn: Turn) -> None:
        self._pipe.send(None)
        while self._wanted():
            self._pipe.send(turn())

    def _wanted(self) -> bool:
        try:
            self._pipe.recv()
        except EOFError:
            return False
        return True


def _run(body: Callable[[TakeTurns], None], take_turns: TakeTurns, threads: int) -> None:
    torch.set_num_threads(threads)
    body(take_turns)
