"""Ours against baselines, a row for each: the settings and the table of benchmarks of single functions."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch

from clop.bench.benchmark import BenchSettings, Result


@dataclass(frozen=True)
class ComparisonSettings(BenchSettings):
    """How often, and on how many threads."""

    rounds: int = 100
    """Number of turns for each comparison."""
    threads: int | None = None
    """Number of threads torch may use (default: all cores)."""

    def asdict(self) -> dict[str, Any]:
        return super().asdict() | {"threads": self.threads or torch.get_num_threads()}


@dataclass(frozen=True)
class Row:
    """One comparison: median milliseconds of ours and of a baseline, timed in turns."""

    what: str
    ours_ms: float
    baseline: str
    baseline_ms: float

    @property
    def ratio(self) -> float:
        return self.ours_ms / self.baseline_ms

    def asdict(self) -> dict[str, Any]:
        return asdict(self) | {"ratio": self.ratio}


def result(rows: Sequence[Row]) -> Result:
    header = ["what", "ours, ms", "baseline", "baseline, ms", "ours / baseline"]
    cells = [
        [row.what, f"{row.ours_ms:.3f}", row.baseline, f"{row.baseline_ms:.3f}", f"{row.ratio:.2f}"] for row in rows
    ]
    return Result(rows, header, cells)
