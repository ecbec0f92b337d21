"""``clop bench train``: how fast the learner is with each encoder, where its time goes, and how near that is to what
the machine can do."""

import os
import random
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import torch

from clop import machine
from clop.bench.benchmark import BenchSettings, Report, Result, silent
from clop.bench.contestants import Contestant, check_sb3, started
from clop.bench.flops import gflop_of
from clop.bench.iteration import Times, iteration_times
from clop.errors import UsageError
from clop.rl.build import build_learner
from clop.rl.config import TrainConfig
from clop.rl.encoders import find_encoder
from clop.rl.envs.levels import LevelSet
from clop.rl.ppo import Learner
from clop.rl.settings import NetworkConfig

DESCRIPTION = (
    "Time PPO on a game in turns, with each encoder: ours in one process and in one for each core, with CLOP, its bare "
    "passes and env steps, matrix products for the machine's peak, and Stable-Baselines3's PPO with IMPALA and with "
    "its own CnnPolicy, with the same settings. A turn is one rollout in 64 envs, played and learnt. About half an "
    "hour."
)
ENVS, EPOCHS = 64, 3
_FASTER: Mapping[str, Mapping[str, dict[str, Any]]] = {
    "impala": {"winograd": {"convolutions": "winograd"}, "bf16": {"amp": "bf16"}},
    "nature": {"bf16": {"amp": "bf16"}},
}
"""Ways to compute an encoder that are not the default and gain by it, by their names."""
_PAIRED_STEPS = 4  # of the short rollouts that CLOP is compared on: many turns show small differences


@dataclass(frozen=True)
class Settings(BenchSettings):
    """What is played, how often, and who takes part."""

    game: str = field(default="starpilot", metadata={"positional": True})
    """Game to play."""
    encoder: str = "impala,small,nature"
    """Encoders, with commas between them."""
    rounds: int = 3
    """Number of turns of each learner."""
    num_steps: int = 64
    """Steps of a rollout in each of the 64 envs; procgen-easy has 256."""
    pairs: int = 16
    """Number of turns with and without CLOP, for each encoder."""
    without_sb3: bool = False
    """Leave Stable-Baselines3 out, which is slow."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for encoder in self.encoders:
            find_encoder(encoder)
        if len(set(self.encoders)) < len(self.encoders):
            raise UsageError(f"each encoder takes part once, got {self.encoder}")

    @property
    def encoders(self) -> list[str]:
        return [name.strip() for name in self.encoder.split(",")]

    @property
    def cores(self) -> int:
        return os.cpu_count() or 1

    def asdict(self) -> dict[str, Any]:
        values = super().asdict() | {"cores": self.cores}
        del values["without_sb3"]  # the rows say it
        return values


@dataclass(frozen=True)
class Row:
    """One learner: medians over its turns."""

    what: str
    kind: str
    """As in :class:`~clop.bench.contestants.Contestant`, like the next five."""
    encoder: str
    processes: int
    method: str
    convolutions: str
    amp: str
    steps_per_second: float
    memory_gb: float
    """The most it used, all processes together."""
    env_share: float | None = None
    act_share: float | None = None
    learn_share: float | None = None
    """Shares of its time; None for a learner that does not report them."""
    gflop_per_step: float | None = None
    """What a step costs: a pass to act on it, and one there and back in each epoch."""
    peak_gflops: float | None = None
    """Speed of matrix products on as many threads, timed in the same rounds."""
    bare_steps_per_second: float | None = None
    """Of bare passes and env steps in as many processes at once, timed in the same rounds."""
    lone_steps_per_second: float | None = None
    """The same of one process, which no other disturbs."""

    @property
    def share_of_peak(self) -> float | None:
        if self.peak_gflops is None or self.gflop_per_step is None:
            return None
        return self.steps_per_second * self.gflop_per_step / self.peak_gflops

    @property
    def share_of_bare(self) -> float | None:
        """Of what bare passes in as many processes make on this machine."""
        return None if self.bare_steps_per_second is None else self.steps_per_second / self.bare_steps_per_second

    @property
    def share_of_lone(self) -> float | None:
        """Of what they would make if processes did not disturb each other."""
        if self.lone_steps_per_second is None:
            return None
        return self.steps_per_second / (self.processes * self.lone_steps_per_second)

    def asdict(self) -> dict[str, Any]:
        shares = ("share_of_peak", "share_of_bare", "share_of_lone")
        return asdict(self) | {name: getattr(self, name) for name in shares}


def run(settings: Settings, report: Report = silent) -> Result:
    check_sb3(settings.without_sb3)
    machine.keep_memory()
    torch.set_num_threads(1)
    costs: dict[str, dict[str, float]] = {}
    for encoder in settings.encoders:
        report(f"CLOP on and off in {settings.pairs} pairs of turns, encoder {encoder}")
        costs[encoder] = {
            topology: cost_of("clop", settings.game, settings.pairs, topology, encoder)
            for topology in ("shared", "split")
        }
    rows = measure(settings, report)
    header = ["learner", "steps/s", "games", "acting", "learning", "of peak", "of bare", "of undisturbed", "memory, GB"]
    cells = [
        [
            row.what,
            f"{row.steps_per_second:.0f}",
            *map(_percent, (row.env_share, row.act_share, row.learn_share)),
            *map(_percent, (row.share_of_peak, row.share_of_bare, row.share_of_lone)),
            f"{row.memory_gb:.2f}",
        ]
        for row in rows
    ]
    found = ratios(rows)
    notes = [
        f"{settings.game}, rollouts of {ENVS}×{settings.num_steps}, {EPOCHS} epochs, 8 minibatches, "
        f"{settings.rounds} turns",
        "of bare: of bare passes and env steps in as many processes at once; of undisturbed: of those in one, times "
        "their number",
        *(f"{names}: {ratio:.1f} times the steps/s" for names, ratio in found.items()),
    ]
    for encoder, by_topology in costs.items():
        texts = ", ".join(f"{cost:.3f} ({topology} network)" for topology, cost in by_topology.items())
        notes.append(
            f"time with CLOP over time without, {encoder}, one process, median of {settings.pairs} pairs: {texts}"
        )
    return Result(rows, header, cells, "\n".join(notes), extra={"ratios": found, "cost_of_clop": costs})


def _percent(share: float | None) -> str:
    return "" if share is None else f"{share:.0%}"


def ratios(rows: Sequence[Row]) -> dict[str, float]:
    """Speeds of plain PPO in most processes over those of named baselines, as far as both took part."""
    fastest = {
        (row.kind, row.encoder, row.convolutions, row.amp): row
        for row in sorted(rows, key=lambda row: row.processes)
        if row.method == "ppo"
    }
    ours = {encoder: ("clop", encoder, "direct", "off") for encoder in ("impala", "small", "nature")}
    theirs = {encoder: ("sb3", encoder, "direct", "off") for encoder in ("impala", "nature")}
    pairs = [
        (ours["small"], ours["impala"]),
        (ours["impala"], theirs["impala"]),
        (("clop", "impala", "winograd", "off"), theirs["impala"]),
        (("clop", "impala", "direct", "bf16"), theirs["impala"]),
        (ours["small"], theirs["impala"]),
        (ours["nature"], theirs["nature"]),
        (("clop", "nature", "direct", "bf16"), theirs["nature"]),
    ]
    return {
        f"{fastest[own].what} / {fastest[other].what}": fastest[own].steps_per_second / fastest[other].steps_per_second
        for own, other in pairs
        if own in fastest and other in fastest
    }


def contestants(settings: Settings) -> list[Contestant]:
    """All learners: with each encoder ours in one process of one thread, in one for each core, and there with CLOP, and
    bare passes in as many; and Stable-Baselines3's on all cores."""
    cores = settings.cores
    together = f"{cores} processes" if cores > 1 else "1 process"
    shared: dict[str, Any] = {"num_steps": settings.num_steps, "game": settings.game}
    learners = []
    for encoder in settings.encoders:
        ours: dict[str, Any] = shared | {"encoder": encoder}
        learners.append(Contestant(f"bare {encoder}, 1 process", "bare", **ours))
        learners.append(Contestant(f"clop {encoder}, 1 process", **ours))
        if cores > 1:
            learners.append(Contestant(f"bare {encoder}, {together}", "bare", processes=cores, **ours))
            learners.append(Contestant(f"clop {encoder}, {together}", processes=cores, **ours))
        learners.append(Contestant(f"clop {encoder}, {together}, method clop", processes=cores, method="clop", **ours))
        for way, changes in _FASTER.get(encoder, {}).items():
            name = f"clop {encoder}, {together}, {way}"
            learners.append(Contestant(name, processes=cores, **(ours | changes)))
    if not settings.without_sb3:
        threads = f"{cores} threads" if cores > 1 else "1 thread"
        learners.append(Contestant(f"Stable-Baselines3 impala, {threads}", "sb3", threads=cores, **shared))
        if "nature" in settings.encoders:
            name = f"Stable-Baselines3 CnnPolicy, {threads}"
            learners.append(Contestant(name, "sb3", "nature", threads=cores, **shared))
    return learners


def measure(settings: Settings, report: Report = silent) -> list[Row]:
    """All learners in turns, each in processes of its own, and matrix products on one and on all cores."""
    learners = contestants(settings)
    peaks = {
        threads: Contestant(f"matmul {threads}", "matmul", threads=threads) for threads in sorted({1, settings.cores})
    }
    turns: dict[str, list[dict[str, Any]]] = {c.name: [] for c in [*learners, *peaks.values()]}
    with started([*learners, *peaks.values()]) as running:
        for number in range(settings.rounds):
            for name, process in running.items():
                turns[name].append(process.turn())
                report(f"round {number + 1} of {settings.rounds}: {name}, {turns[name][-1]['seconds']:.1f} s")
    bare = {(c.encoder, c.processes): _speed(c, turns[c.name]) for c in learners if c.kind == "bare"}
    return [_row(c, turns[c.name], turns[peaks[c.processes].name], bare) for c in learners]


def _row(
    contestant: Contestant,
    turns: list[dict[str, Any]],
    peaks: list[dict[str, Any]],
    bare: Mapping[tuple[str, int], float],
) -> Row:
    def share(name: str) -> float | None:
        return _median(turns, name) / _median(turns, "seconds") if name in turns[0] else None

    c = contestant
    speed, memory = _speed(c, turns), max(sum(turn["memory_gb"]) for turn in turns)
    row = Row(
        *(c.name, c.kind, c.encoder, c.processes, c.method, c.convolutions, c.amp, speed, memory),
        *map(share, ("env", "act", "learn")),
    )
    if c.kind == "sb3":
        return row
    gflop = gflop_of(NetworkConfig(encoder=c.encoder), LevelSet(c.game).spec)
    return replace(
        row,
        gflop_per_step=gflop.forward + EPOCHS * gflop.both,
        peak_gflops=_median(peaks, "gflops"),
        bare_steps_per_second=bare[c.encoder, c.processes],
        lone_steps_per_second=bare[c.encoder, 1],
    )


def _speed(contestant: Contestant, turns: list[dict[str, Any]]) -> float:
    """Steps per second."""
    return ENVS * contestant.num_steps / _median(turns, "seconds")


def _median(turns: list[dict[str, Any]], name: str) -> float:
    return statistics.median(turn[name] for turn in turns)


def cost_of(method: str, game: str, rounds: int, topology: str = "shared", encoder: str = "impala") -> float:
    """Seconds with a method over seconds without it: the median of paired turns, in this process."""
    changes = {
        "ppo.num_steps": _PAIRED_STEPS,
        "ppo.num_minibatches": 1,
        "network.topology": topology,
        "network.encoder": encoder,
    }
    learners = {
        name: build_learner(TrainConfig.preset("procgen-easy", game, which, **changes))
        for name, which in {"without": "ppo", "with": method}.items()
    }
    return statistics.median(sum(turn["with"]) / sum(turn["without"]) for turn in _take_turns(learners, rounds))


def _take_turns(learners: Mapping[str, Learner], rounds: int) -> list[dict[str, Times]]:
    """The times of one iteration of each learner, for each round; the order changes, since the first finds the machine
    colder."""
    for learner in learners.values():
        learner.iterate()  # warm up
    order = random.Random(0)
    return [
        {name: iteration_times(learners[name]) for name in order.sample(list(learners), len(learners))}
        for _ in range(rounds)
    ]
