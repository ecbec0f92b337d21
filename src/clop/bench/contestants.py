"""Learners that take turns, ours and another's, and the machine's peak beside them."""

import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from clop import machine
from clop.bench.own_process import OwnProcess, TakeTurns

_MATMUL = 1024


@dataclass(frozen=True)
class Contestant:
    """A learner, or the machine's peak, and its settings: what a process needs to build it."""

    name: str
    kind: str = "clop"
    """``clop``, ``sb3`` (Stable-Baselines3's PPO) or ``matmul`` (the machine's peak)."""
    processes: int = 1
    threads: int = 1
    method: str = "ppo"
    num_steps: int = 256
    """Steps of a rollout in each of the 64 envs."""
    game: str = "starpilot"


@contextmanager
def started(contestants: list[Contestant]) -> Iterator[Mapping[str, OwnProcess]]:
    """All contestants, started and waiting for their first turn.

    A turn is one rollout, played and learnt: its seconds, where they went, and the most memory used so far.
    """
    with ExitStack() as stack:
        yield {c.name: stack.enter_context(OwnProcess(c.name, partial(_take_part, c), c.threads)) for c in contestants}


def _take_part(contestant: Contestant, take_turns: TakeTurns) -> None:
    {"clop": _clop, "sb3": _sb3, "matmul": _matmul}[contestant.kind](contestant, take_turns)


# ---- clop ----------------------------------------------------------------------------------------------------------


def _clop(contestant: Contestant, take_turns: TakeTurns) -> None:
    """Our learner, in as many processes as the contestant has."""
    from clop.distributed import run_together
    from clop.rl.envs.vector import choose_backend, preload

    machine.keep_memory()
    preload(choose_backend())
    run_together(contestant.processes, "cpu", partial(_clop_process, contestant, take_turns))


def _clop_process(contestant: Contestant, take_turns: TakeTurns) -> None:
    from clop.bench.iteration import iteration_times
    from clop.distributed import Workers
    from clop.rl.methods import METHODS, names
    from clop.rl.ppo import PPOConfig
    from clop.rl.train import build_learner, preset_config

    workers = Workers()
    config = preset_config(
        contestant.game,
        "procgen-easy",
        ppo=PPOConfig(num_steps=contestant.num_steps),
        methods={name: METHODS[name]() for name in names(contestant.method)},
    )
    learner = build_learner(config, workers=workers)

    def turn() -> dict[str, Any]:
        workers.broadcast("turn")
        env, act, learn = iteration_times(learner)
        memory = workers.gather(machine.peak_memory_gb())
        return {"seconds": env + act + learn, "env": env, "act": act, "learn": learn, "memory_gb": memory}

    if workers.is_first:
        take_turns(turn)
        workers.broadcast("end")
        return
    while workers.broadcast(None) == "turn":
        iteration_times(learner)
        workers.gather(machine.peak_memory_gb())


# ---- others --------------------------------------------------------------------------------------------------------


def _matmul(_: Contestant, take_turns: TakeTurns) -> None:
    """The machine's peak: products of square matrices, in float32."""
    import torch

    a, b = torch.randn(_MATMUL, _MATMUL), torch.randn(_MATMUL, _MATMUL)

    def turn() -> dict[str, Any]:
        start, count = time.perf_counter(), 0
        while (seconds := time.perf_counter() - start) < 2:
            a @ b
            count += 1
        return {"seconds": seconds, "gflops": count * 2 * _MATMUL**3 / seconds / 1e9}

    turn()
    take_turns(turn)


def _sb3(contestant: Contestant, take_turns: TakeTurns) -> None:
    """Stable-Baselines3's PPO with our network and games, and nothing else of ours: its defaults elsewhere."""
    from stable_baselines3 import PPO
    from stable_baselines3.common.vec_env import VecNormalize

    from clop.bench.sb3 import Impala, SB3Games

    games = VecNormalize(SB3Games(contestant.game, 64), norm_obs=False, gamma=0.999)
    batch = 64 * contestant.num_steps
    model = PPO(
        "CnnPolicy",
        games,
        n_steps=contestant.num_steps,
        batch_size=batch // 8,
        n_epochs=3,
        learning_rate=5e-4,
        gamma=0.999,
        ent_coef=0.01,
        policy_kwargs={"features_extractor_class": Impala, "net_arch": []},
        seed=0,
        device="cpu",
    )

    def turn() -> dict[str, Any]:
        start = time.perf_counter()
        model.learn(batch, reset_num_timesteps=False)
        return {"seconds": time.perf_counter() - start, "memory_gb": [machine.peak_memory_gb()]}

    take_turns(turn)
