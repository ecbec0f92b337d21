"""What a benchmark is: settings in, a result with its table out.

A module of :data:`~clop.bench.registry.BENCHES` has ``DESCRIPTION`` for the command line, a class ``Settings`` and
``run(settings, report) -> Result``.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from clop.errors import UsageError
from clop.report.tables import markdown

Report = Callable[[str], None]
"""Takes a line about the progress."""


def silent(_: str) -> None:
    """A :data:`Report` that goes nowhere."""


@dataclass(frozen=True)
class BenchSettings:
    """Base of the settings of all benchmarks: every field has a default, and every integer is a count."""

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if type(value) is int and value < 1:  # not isinstance: a bool is an int too
                raise UsageError(f"{name} must be at least 1, got {value}")

    def asdict(self) -> dict[str, Any]:
        """The settings that the numbers depend on, as the record has them."""
        return dataclasses.asdict(self)


class Row(Protocol):
    """One line of what was measured."""

    def asdict(self) -> dict[str, Any]: ...


@dataclass(frozen=True)
class Result:
    """What a benchmark has measured: for the record the rows, for people a table of them."""

    rows: Sequence[Row]
    header: Sequence[str]
    cells: Sequence[Sequence[str]]
    """Texts of the table, a line for each row."""
    note: str = ""
    """Printed under the table: the scale of the measurement, and what is not in a row."""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Metrics that belong to no row."""

    def metrics(self) -> dict[str, Any]:
        """As in a run record."""
        return {"rows": [row.asdict() for row in self.rows], **self.extra}

    def text(self) -> str:
        """The table in Markdown and the note."""
        table = markdown(self.header, self.cells)
        return f"{table}\n{self.note}" if self.note else table
