"""Gymnasium's environments, and a user's own, played: a level is the seed that ``reset`` is given.

Gymnasium steps the copies of a game, one after the other here or each in a process of its own. What it steps is not
the game itself but :class:`_Levels`, which chooses levels, checks frames, and never raises: an exception in a process
of its own would come out as a page of text, and one that does not pickle would never come out. Gymnasium is imported
when it is used.
"""

import contextlib
import functools
import math
import multiprocessing
import multiprocessing.util
import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from clop import machine
from clop.errors import UsageError
from clop.rl.envs.gymnasium_spec import blaming, close_quietly, described, make, shortened, spec_of
from clop.rl.envs.spec import EnvSpec
from clop.rl.games import INT32_MAX

if TYPE_CHECKING:
    from multiprocessing.process import BaseProcess

    from gymnasium import Env

_SUCCESS = ("is_success", "success")  # names under which games report in their info that a level is solved
_MAX_REWARD = float(np.finfo(np.float32).max)
_STOPS = (signal.SIGINT, signal.SIGTERM)


def alike_warning(game: str, frames: Sequence[bytes]) -> str | None:
    """A sentence if the first frames of several levels are all the same, given as bytes or digests."""
    if len(frames) < 2 or len(set(frames)) > 1:
        return None
    return (
        f"{game} begins with the same frame for {len(frames)} different seeds: its training and test levels are the "
        "same unless they differ later; a game makes its levels from the seed that reset is given"
    )


class GymnasiumEngine:
    """Games that step together; an :class:`~clop.rl.envs.spec.Engine`.

    An error ends all copies. Which levels are drawn does not depend on ``in_workers``.
    """

    can_save: ClassVar[bool] = False

    def __init__(
        self,
        game: str,
        wrappers: tuple[str, ...],
        spec: EnvSpec,
        num_envs: int,
        start_level: int,
        num_levels: int,
        seed: int,
        in_workers: bool,
    ) -> None:
        self._game = game
        self.rewards: NDArray[np.float32] = np.zeros(num_envs, np.float32)
        self.dones: NDArray[np.bool_] = np.ones(num_envs, np.bool_)
        self.completed: NDArray[np.bool_] = np.zeros(num_envs, np.bool_)
        self.ended_level_seeds: NDArray[np.int32] = np.zeros(num_envs, np.int32)
        self.cut_off: Sequence[tuple[int, NDArray[np.uint8]]] = ()
        levels = (start_level, start_level + num_levels) if num_levels else (0, INT32_MAX)
        copies = [functools.partial(_Levels, game, wrappers, spec, levels, (seed, env)) for env in range(num_envs)]
        self._vector = _in_workers(copies) if in_workers else _here(copies)
        with self._ending_on_error():
            self.frames, info = self._vector.reset()
            self._raise_reported(info)
        self.level_seeds: NDArray[np.int32] = info["level_seed"].astype(np.int32)

    def act(self, actions: NDArray[np.int32]) -> None:
        with self._ending_on_error():
            self.frames, rewards, terminated, truncated, info = self._vector.step(actions)
            self._raise_reported(info)
        self.rewards, self.dones = rewards.astype(np.float32), terminated | truncated
        self.cut_off = ()
        if self.dones.any():
            self.ended_level_seeds = self.level_seeds
            self.level_seeds = np.where(self.dones, info["level_seed"], self.level_seeds).astype(np.int32)
            self.completed = info["final_info"]["completed"]
            self.cut_off = [(int(env), info["final_obs"][env]) for env in np.flatnonzero(truncated & ~terminated)]

    def state(self) -> list[bytes]:
        raise AssertionError("Gymnasium has no way to save running games")

    def restore(self, states: Sequence[bytes]) -> None:
        raise AssertionError("Gymnasium has no way to save running games")

    def close(self) -> None:
        with contextlib.suppress(EOFError, OSError):  # of a process that has died since the last step
            self._vector.close()
        _end(self._vector)

    @contextlib.contextmanager
    def _ending_on_error(self) -> Iterator[None]:
        """Whatever interrupts a step, even Ctrl-C, leaves answers in the pipes that would come out as the next ones."""
        try:
            yield
        except (EOFError, ConnectionError) as error:
            _end(self._vector)
            raise UsageError(
                f"a process that plays {self._game} died, for want of memory or by a fault of the game; "
                "the run can be resumed from its last checkpoint"
            ) from error
        except BaseException:
            _end(self._vector)
            raise

    def _raise_reported(self, info: dict[str, Any]) -> None:
        if "error" in info:
            raise UsageError(next(sentence for sentence in info["error"] if sentence is not None))


def _here(copies: "Sequence[Callable[[], _Levels]]") -> Any:
    from gymnasium.vector import AutoresetMode, SyncVectorEnv

    return SyncVectorEnv(_as_env_functions(copies), copy=False, autoreset_mode=AutoresetMode.SAME_STEP)


def _in_workers(copies: "Sequence[Callable[[], _Levels]]") -> Any:
    from gymnasium.vector import AsyncVectorEnv, AutoresetMode

    others = multiprocessing.active_children()
    # For Linux, whoever is started by a thread has lost its parent when that thread is gone; the main one goes last.
    parent = os.getpid() if threading.current_thread() is threading.main_thread() else None
    try:
        with _holding_back_signals(), _may_have_children(), warnings.catch_warnings():
            # Python 3.12 and later warn of a fork in a process with threads. Those of torch are waiting for work.
            warnings.filterwarnings("ignore", ".*fork", DeprecationWarning)
            vector = AsyncVectorEnv(
                _as_env_functions(copies),
                shared_memory=True,
                copy=False,
                context="fork" if sys.platform == "linux" else None,
                worker=functools.partial(_worker, parent),
                autoreset_mode=AutoresetMode.SAME_STEP,
            )
    except BaseException as error:
        _kill([process for process in multiprocessing.active_children() if process not in others])
        if isinstance(error, OSError):
            raise UsageError(
                f"{len(copies)} game processes could not be started ({described(error)}); "
                "use fewer games or gymnasium-sync"
            ) from error
        raise
    # A process that ends with its games open sends them SIGTERM, which they do not heed, and waits for them.
    multiprocessing.util.Finalize(vector, _kill, (vector.processes,), exitpriority=0)
    return vector


def _as_env_functions(copies: "Sequence[Callable[[], _Levels]]") -> "Sequence[Callable[[], Env[Any, Any]]]":
    return copies  # type: ignore[return-value]  # _Levels has what the vector environments use of an Env


def _worker(parent: int | None, *arguments: Any) -> None:
    """Gymnasium's own, which ends when we say so, and without a word when we are gone.

    Then its pipe is closed; a game that hangs in a step would not notice, and ends if it knows its parent.
    """
    from gymnasium.vector.async_vector_env import _async_worker

    # Ctrl-C and a scheduler's SIGTERM may go to all processes, and are for the learner, which may want to save first.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _unheeded)  # programs that the game starts inherit no handler, and can be terminated
    if sys.platform != "win32":
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _STOPS)
        if parent is not None:
            machine.end_with(parent, signal.SIGKILL)
    with contextlib.suppress(BrokenPipeError):
        _async_worker(*arguments)


def _unheeded(*_: object) -> None:
    pass


@contextlib.contextmanager
def _holding_back_signals() -> Iterator[None]:
    """While processes are forked: each begins with our handlers, which would take a signal to it for one to us."""
    if sys.platform == "win32":
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _STOPS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextlib.contextmanager
def _may_have_children() -> Iterator[None]:
    """Processes that end with their parent may not start others, which would go on alone; ours end when their pipe
    does."""
    process = multiprocessing.current_process()
    before = process.daemon
    if before:
        process.daemon = False
    try:
        yield
    finally:
        if before:
            process.daemon = True


def _end(vector: Any) -> None:
    """End what ``close`` has left, or all where it cannot be called: after an error it could wait for ever."""
    if hasattr(vector, "processes"):
        _kill(vector.processes)
        for pipe in vector.parent_pipes:
            if pipe is not None:
                pipe.close()
        vector.closed = True
    else:
        vector.close()


def _kill(processes: "Sequence[BaseProcess]") -> None:
    for process in processes:
        process.kill()
    for process in processes:
        process.join()


class _Levels:
    """One copy of a game that draws the level of each episode; what Gymnasium's vector environments use of an ``Env``.

    The game is made at the first ``reset``, in the process that plays it. What goes wrong is reported in the info,
    and of the game's own info only what we use is handed on: it may hold anything, and would be pickled.
    """

    metadata: ClassVar[dict[str, Any]] = {}
    render_mode: ClassVar[None] = None

    def __init__(
        self, game: str, wrappers: tuple[str, ...], spec: EnvSpec, levels: tuple[int, int], seed: tuple[int, int]
    ) -> None:
        from gymnasium.spaces import Box, Discrete

        self.observation_space = Box(0, 255, spec.obs_shape, np.uint8)
        self.action_space = Discrete(spec.num_actions)
        self._game, self._wrappers, self._spec, self._levels = game, wrappers, spec, levels
        self._random = np.random.default_rng(seed)
        self._env: Env[Any, Any] | None = None
        self._first_action = np.int64(spec.first_action)

    def reset(self, *, seed: object = None, options: object = None) -> tuple[NDArray[np.uint8], dict[str, Any]]:
        level = int(self._random.integers(*self._levels))
        try:
            if self._env is None:
                self._env = self._made()
            with blaming(f"reset of {self._game}"):
                frame, _ = self._env.reset(seed=level)
            return self._checked(frame), {"level_seed": level}
        except UsageError as error:
            return self._failed(error)

    def step(self, action: np.int32) -> tuple[NDArray[np.uint8], float, bool, bool, dict[str, Any]]:
        assert self._env is not None
        try:
            with blaming(f"step of {self._game}"):
                frame, reward, terminated, truncated, info = self._env.step(self._first_action + action)
                reward, terminated, truncated = self._number(reward), bool(terminated), bool(truncated)
                if not (terminated or truncated):
                    return self._checked(frame), reward, False, False, {}
                solved = next((info[name] for name in _SUCCESS if name in info), terminated and reward > 0)
                # A game may draw all its frames into one array, and the next episode begins before this one is read.
                return self._checked(frame).copy(), reward, terminated, truncated, {"completed": bool(solved)}
        except UsageError as error:
            frame, info = self._failed(error)
            return frame, 0.0, False, False, info

    def close(self) -> None:
        if self._env is not None:
            close_quietly(self._env)
            self._env = None

    def _made(self) -> "Env[Any, Any]":
        env = make(self._game, self._wrappers)
        try:
            spec, declared = spec_of(env, self._game), self._spec
            if (spec.obs_shape, spec.num_actions) != (declared.obs_shape, declared.num_actions):
                raise UsageError(
                    f"copies of {self._game} differ: the first shows {declared.obs_shape} and takes "
                    f"{declared.num_actions} actions, another {spec.obs_shape} and {spec.num_actions}; make them alike"
                )
        except UsageError:
            close_quietly(env)
            raise
        self._first_action = np.int64(spec.first_action)
        return env

    def _checked(self, frame: Any) -> NDArray[np.uint8]:
        declared = self._spec.obs_shape
        if not isinstance(frame, np.ndarray):
            raise UsageError(
                f"{self._game} gave a frame of type {type(frame).__name__}, declared uint8 {declared}; "
                "correct its observation_space or its frames"
            )
        if frame.shape != declared or frame.dtype != np.uint8:
            raise UsageError(
                f"{self._game} gave a frame of {frame.dtype} {frame.shape}, declared uint8 {declared}; "
                "correct its observation_space or its frames"
            )
        return frame

    def _number(self, reward: Any) -> float:
        try:
            number = float(reward)
        except (TypeError, ValueError, OverflowError):
            number = math.nan
        if not abs(number) <= _MAX_REWARD:  # which is so for nan too
            raise UsageError(
                f"{self._game} gave a reward of {shortened(repr(reward), 60)}, expected a finite number (float32); "
                "correct what its step returns"
            )
        return number

    def _failed(self, error: UsageError) -> tuple[NDArray[np.uint8], dict[str, Any]]:
        return np.zeros(self._spec.obs_shape, np.uint8), {"error": str(error)}
