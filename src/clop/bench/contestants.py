"""Learners that take turns, ours and another's, and the machine's peak beside them."""

import importlib.util
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from clop import machine
from clop.bench.own_process import OwnProcess, TakeTurns, Turn
from clop.errors import UsageError

if TYPE_CHECKING:
    from clop.distributed import Workers
    from clop.rl.config import TrainConfig


@dataclass(frozen=True)
class Contestant:
    """A learner, or the machine's peak, and its settings: what a process needs to build it."""

    name: str
    kind: str = "clop"
    """``clop``, ``bare`` (its passes and env steps alone), ``sb3`` (Stable-Baselines3's PPO) or ``matmul`` (the
    machine's peak)."""
    encoder: str = "impala"
    """Of Stable-Baselines3, ``nature`` stands for its own ``CnnPolicy``."""
    processes: int = 1
    threads: int = 1
    method: str = "ppo"
    num_steps: int = 256
    """Steps of a rollout in each of the 64 envs."""
    game: str = "starpilot"
    convolutions: str = "direct"
    """Of our network: ``direct`` or ``winograd``."""
    amp: str = "off"
    """Mixed precision of our network: ``off`` or ``bf16``."""

    @property
    def config(self) -> "TrainConfig":
        """The run whose rollouts and updates it makes."""
        from clop.rl.config import TrainConfig

        changes = {
            "ppo.num_steps": self.num_steps,
            "network.encoder": self.encoder,
            "network.convolutions": self.convolutions,
            "network.amp": self.amp,
            "processes": self.processes,
        }
        return TrainConfig.preset("procgen-easy", self.game, self.method, **changes)


@contextmanager
def started(contestants: list[Contestant]) -> Iterator[Mapping[str, OwnProcess]]:
    """All contestants, started and waiting for their first turn.

    A turn is one rollout, played and learnt: its seconds, where they went, and the most memory used so far.
    """
    with ExitStack() as stack:
        yield {c.name: stack.enter_context(OwnProcess(c.name, partial(_take_part, c), c.threads)) for c in contestants}


def check_sb3(without: bool) -> None:
    """A :class:`UsageError` if it is to take part and is not there, before the others have run for long."""
    if not without and importlib.util.find_spec("stable_baselines3") is None:
        raise UsageError(
            "this benchmark compares with Stable-Baselines3, which is not installed: pip install stable-baselines3, or "
            "leave it out with --without-sb3"
        )


def _take_part(contestant: Contestant, take_turns: TakeTurns) -> None:
    {"clop": _clop, "bare": _clop, "sb3": _sb3, "matmul": _peak}[contestant.kind](contestant, take_turns)


# ---- clop ----------------------------------------------------------------------------------------------------------


def _clop(contestant: Contestant, take_turns: TakeTurns) -> None:
    """Our learner, in as many processes as the contestant has."""
    start_together(contestant.config, partial(_clop_process, contestant, take_turns))


def _clop_process(contestant: Contestant, take_turns: TakeTurns) -> None:
    from clop.bench.iteration import bare_times, iteration_times
    from clop.distributed import Workers
    from clop.rl.build import build_learner

    workers = Workers()
    learner = build_learner(contestant.config, workers=workers)

    def turn() -> dict[str, Any]:
        times = bare_times(learner) if contestant.kind == "bare" else iteration_times(learner)
        memory = workers.gather(machine.peak_memory_gb())
        # Bare processes do not wait for one another, and the work is done when the last has done its share.
        slowest = max(workers.gather(times), key=lambda each: each.total, default=times)
        return {"seconds": slowest.total, **slowest._asdict(), "memory_gb": memory}

    take_turns_together(workers, take_turns, turn)


def start_together(config: "TrainConfig", body: Callable[[], None]) -> None:
    """Run ``body`` in all processes of a run, as ``clop train`` does."""
    from clop.distributed import run_together
    from clop.rl.envs.backends import choose_backend
    from clop.rl.envs.levels import preload

    machine.keep_memory()
    preload(choose_backend(config.backend, config.game))
    run_together(config.processes, "cpu", body)


def take_turns_together(workers: "Workers", take_turns: TakeTurns, turn: Turn) -> None:
    """Take each turn in all processes of a run at once; what the first returns is the report on it."""

    def all_turn() -> Any:
        workers.broadcast("turn")
        return turn()

    if workers.is_first:
        take_turns(all_turn)
        workers.broadcast("end")
        return
    while workers.broadcast(None) == "turn":
        turn()


# ---- others --------------------------------------------------------------------------------------------------------


def _peak(_: Contestant, take_turns: TakeTurns) -> None:
    from clop.bench.peak import take_peaks

    take_peaks(take_turns)


def _sb3(contestant: Contestant, take_turns: TakeTurns) -> None:
    """Stable-Baselines3's PPO on our games, with its own network or ours, and nothing else of ours."""
    from clop.bench.sb3 import SB3Work

    work = SB3Work(contestant.config, contestant.encoder)

    def turn() -> dict[str, Any]:
        before = work.seconds
        work.step()
        return {"seconds": work.seconds - before, "memory_gb": [machine.peak_memory_gb()]}

    take_turns(turn)
