"""What a report costs: ``clop report`` on made-up runs, as many and as long as those of the paper."""

import json
import math
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from clop.bench.bars import Row, result
from clop.bench.benchmark import BenchSettings, Report, Result, silent
from clop.errors import UsageError
from clop.experiments.run_folder import origin
from clop.experiments.summaries import FORMAT_VERSION, AgentSummary, EvaluationSummary
from clop.files import write_json
from clop.rl.config import TrainConfig
from clop.rl.games import GAMES, normalised_return

DESCRIPTION = (
    "Time clop report on made-up runs of the paper's length, in processes of its own, and compare the bytes that it "
    "writes from one time to the next."
)
_METHODS = (
    *("ppo", "mixreg", "rand_fm", "ucb_drac", "ibac_sni", "rad", "idaac", "clop", "idaac+clop"),
    *("clop(local=false)", "clop(channel_consistent=false)", "clop(alpha=0.1)", "dropout", "batch_norm"),
)
_STEPS = 25_000_000
_OTHERS = ("policy_loss", "approx_kl", "clip_fraction", "value_loss", "entropy", "grad_norm", "explained_variance")


@dataclass(frozen=True)
class Settings(BenchSettings):
    """How much of everything."""

    games: int = 16
    """Number of Procgen's games."""
    methods: int = 14
    """Number of methods: first the paper's, then its ablations, then others."""
    seeds: int = 5
    """Seeds of each method on each game."""
    iterations: int = 1526
    """Lines of metrics of a run; those of the paper's 25 M steps by default."""
    turns: int = 3
    """Reports that are timed; the numbers are their medians."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, most in (("games", len(GAMES)), ("methods", len(_METHODS))):
            if getattr(self, name) > most:
                raise UsageError(f"{name} must be at most {most}, got {getattr(self, name)}")


def run(settings: Settings, report: Report = silent) -> Result:
    rows, load = measure(settings, report)
    note = f"load of the machine before each report: {', '.join(f'{one:.1f}' for one in load)}"
    return result(rows, note, {"load": load})


def measure(settings: Settings, report: Report = silent) -> tuple[list[Row], list[float]]:
    """The lines, and how many processes of the machine wanted to run before each report."""
    turns, load = [], []
    with tempfile.TemporaryDirectory(prefix="clop-report-") as name:
        folder = Path(name)
        count = settings.games * settings.methods * settings.seeds
        runs = "run" if count == 1 else "runs"
        report(f"{count} {runs}")
        write_runs(folder / "runs", settings)
        for number in range(settings.turns):
            report(f"report {number + 1} of {settings.turns}")
            load.append(round(os.getloadavg()[0], 2))
            turns.append(_timed(folder))
    first = turns[0].files
    same = sum(all(turn.files.get(path) == text for turn in turns) for path, text in first.items())

    def median(name: str) -> float:
        return statistics.median(getattr(turn, name) for turn in turns)

    rows = [
        Row(f"report on {count} {runs}, processor time", median("processor"), "s", ""),
        Row(f"report on {count} {runs}, time on the clock", median("clock"), "s", "30"),
        Row("memory", median("memory"), "GB", ""),
        Row("files with the same bytes each time", same, f"of {len(first)}", "all"),
    ]
    return rows, load


@dataclass(frozen=True)
class _Turn:
    processor: float
    clock: float
    memory: float
    files: dict[str, bytes]


def _timed(folder: Path) -> _Turn:
    """One report, in a process of its own; always to the same folder, whose name stands in what is written."""
    out = folder / "out"
    words = [sys.executable, "-m", "clop", "report", str(folder / "runs"), "--out", str(out)]
    start = time.monotonic()
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(words, stdout=log, stderr=log)
        _, status, used = os.wait4(process.pid, 0)
    if process.returncode is None:
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise UsageError(f"clop report has failed: {(folder / 'log').read_text()[-500:]}")
    files = {str(path.relative_to(out)): path.read_bytes() for path in sorted(out.rglob("*")) if path.is_file()}
    return _Turn(used.ru_utime + used.ru_stime, time.monotonic() - start, used.ru_maxrss / 1024**2, files)


def write_runs(folder: Path, settings: Settings) -> None:
    """Finished runs with made-up numbers."""
    about = {"version": FORMAT_VERSION, "kind": "agent", **origin("clop bench report")}
    for place, method in enumerate(_METHODS[: settings.methods]):
        for seed in range(settings.seeds):
            rng = random.Random(f"{method} {seed}")
            top = 5 + 0.2 * place + rng.gauss(0, 0.4)
            metrics = "".join(_lines(settings.iterations, top, rng))
            for game in list(GAMES)[: settings.games]:
                path = folder / f"{game}-{method}-{seed}"
                config = TrainConfig.preset("authors-easy", game, method, seed=seed, total_timesteps=_STEPS)
                write_json(path / "config.json", {**about, "config": config.asdict()})
                (path / "metrics.jsonl").write_text(metrics)
                train, test = (
                    _evaluation(game, split, share * top + rng.gauss(0, 0.2))
                    for split, share in (("train", 1.0), ("test", 0.7))
                )
                summary = AgentSummary(
                    game=game,
                    method=config.method,
                    notes={},
                    preset_name=config.preset_name,
                    seed=seed,
                    env_steps=_STEPS,
                    train=train,
                    test=test,
                    gap=train.mean - test.mean,
                    steps_per_second=1000.0,
                    seconds=_STEPS / 1000,
                    peak_memory_gb=1.0,
                )
                write_json(path / "summary.json", summary.asdict())


def _lines(count: int, top: float, rng: random.Random) -> Iterator[str]:
    """A curve that rises to ``top``, with a test on every fifteenth line."""
    for number in range(1, count + 1):
        seen = top * (1 - math.exp(-4 * number / count)) + rng.gauss(0, 0.2)
        row = {"iteration": number, "env_steps": _STEPS * number // count, "episodic_return": seen}
        row |= {name: rng.random() for name in _OTHERS}
        if number % 15 == 0:
            row["test_return"] = 0.7 * seen
        yield json.dumps(row) + "\n"


def _evaluation(game: str, split: str, mean: float) -> EvaluationSummary:
    about = ("clop-v1", game, "easy", split, "levels", "procgen-mirror")
    return EvaluationSummary(*about, 0, 1024, mean, 0.1, float(normalised_return(mean, game)), 0.5, 100.0)
