"""Learners that take turns: each in processes of its own, so that none has another's memory, threads or settings.

A contestant is this module run as a program. It reads lines from its input; for each it plays and learns one rollout
and prints what that took, as JSON. Between its turns it waits, so contestants do not disturb each other.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from clop import machine
from clop.errors import UsageError

_MATMUL = 1024


@dataclass(frozen=True)
class Contestant:
    """What takes part."""

    name: str
    kind: str = "clop"
    """``clop``, ``sb3`` (Stable-Baselines3's PPO) or ``matmul`` (the machine's peak)."""
    processes: int = 1
    threads: int = 1
    method: str = "ppo"
    num_steps: int = 256
    """Of a rollout in each of the 64 envs."""
    game: str = "starpilot"


@contextmanager
def started(contestants: list[Contestant]) -> Iterator[Mapping[str, "Running"]]:
    """All contestants, started and waiting for their first turn."""
    with ExitStack() as stack:
        yield {c.name: stack.enter_context(Running(c)) for c in contestants}


class Running:
    """A contestant's process."""

    def __init__(self, contestant: Contestant) -> None:
        self.contestant = contestant
        threads = str(contestant.threads)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "clop.bench.contestants", json.dumps(asdict(contestant))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | {"OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads},
            text=True,
        )
        self._answer()  # it is ready

    def turn(self) -> dict[str, Any]:
        """One rollout, played and learnt: its seconds, where they went, and the most memory used so far."""
        assert self._process.stdin is not None
        self._process.stdin.write("turn\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise UsageError(f"{self.contestant.name} has ended; its message is above")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def __enter__(self) -> "Running":
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._process.communicate(timeout=20)  # the end of its input is the end of its turns
        finally:
            self._process.kill()


def _take_turns(turn: Any) -> None:
    print(json.dumps({}), flush=True)  # noqa: T201 - the protocol of a contestant
    for _ in sys.stdin:
        print(json.dumps(turn() | {"peak_memory_gb": machine.peak_memory_gb()}), flush=True)  # noqa: T201


# ---- clop ----------------------------------------------------------------------------------------------------------


def _clop(contestant: Contestant) -> None:
    """Our learner, in as many processes as the contestant has."""
    import torch

    from clop.bench.train import iteration_times
    from clop.rl.methods import METHODS, names
    from clop.rl.ppo import PPOConfig
    from clop.rl.train import build_learner, preset_config
    from clop.rl.workers import Workers

    machine.keep_memory()
    torch.set_num_threads(contestant.threads)
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
        _take_turns(turn)
        workers.broadcast("end")
        return
    while workers.broadcast(None) == "turn":
        iteration_times(learner)
        workers.gather(machine.peak_memory_gb())


# ---- others --------------------------------------------------------------------------------------------------------


def _matmul(contestant: Contestant) -> None:
    """The machine's peak: products of square matrices, in float32."""
    import torch

    torch.set_num_threads(contestant.threads)
    a, b = torch.randn(_MATMUL, _MATMUL), torch.randn(_MATMUL, _MATMUL)

    def turn() -> dict[str, Any]:
        start, count = time.perf_counter(), 0
        while (seconds := time.perf_counter() - start) < 2:
            a @ b
            count += 1
        return {"seconds": seconds, "gflops": count * 2 * _MATMUL**3 / seconds / 1e9}

    turn()
    _take_turns(turn)


def _sb3(contestant: Contestant) -> None:
    """Stable-Baselines3's PPO with our network and games, and nothing else of ours: its defaults elsewhere."""
    import torch
    from stable_baselines3 import PPO
    from stable_baselines3.common.vec_env import VecNormalize

    from clop.bench.sb3 import Impala, SB3Games

    torch.set_num_threads(contestant.threads)
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
        return {"seconds": time.perf_counter() - start}

    _take_turns(turn)


def _main(text: str) -> None:
    contestant = Contestant(**json.loads(text))
    if contestant.kind == "clop":
        from clop.rl.envs import choose_backend, preload
        from clop.rl.workers import run_together

        preload(choose_backend())
        run_together(contestant.processes, "cpu", partial(_clop, contestant))
    else:
        {"sb3": _sb3, "matmul": _matmul}[contestant.kind](contestant)


if __name__ == "__main__":
    _main(sys.argv[1])
