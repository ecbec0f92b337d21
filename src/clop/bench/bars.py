"""Measurements with a bar each: the row and the table of benchmarks of promises."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from clop.bench.benchmark import Result


@dataclass(frozen=True)
class Row:
    """One line: what was measured, and its bar."""

    what: str
    value: float
    unit: str
    """``of N`` for a count."""
    bar: str

    @property
    def text(self) -> str:
        return f"{self.value:.{0 if self.unit.startswith('of') else 2}f} {self.unit}".strip()

    def asdict(self) -> dict[str, Any]:
        return asdict(self)


def result(rows: Sequence[Row], note: str, extra: Mapping[str, Any]) -> Result:
    return Result(rows, ["what", "measured", "bar"], [[row.what, row.text, row.bar] for row in rows], note, extra)
