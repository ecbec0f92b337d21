"""Tables: what one holds, and how it is written as Markdown, CSV and LaTeX."""

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path

from clop.report.stats import Estimate

NOT_RUN = "not run"
NOT_AVAILABLE = "n/a"
Link = Callable[["Value"], str]


@dataclass(frozen=True)
class Value:
    """A number of a table; None is one that cannot be computed from what was published, or has no meaning."""

    value: float | None
    std: float | None = None
    """Over seeds; what the paper's ± is, it does not say."""
    low: float | None = None
    high: float | None = None
    n: int | None = None
    runs: tuple[Path, ...] = ()
    """Folders of the runs it comes from."""

    @classmethod
    def of(cls, found: Estimate | None, runs: Sequence[Path] = (), std: float | None = None) -> "Value":
        """Of an estimate, or none where it has no meaning."""
        if found is None:
            return cls(None)
        return cls(found.value, std, found.low, found.high, found.n, tuple(runs))

    def text(self, digits: int) -> str:
        """``8.0 ± 1.0 [5.5, 10.5]``, as far as there is one of each."""
        if self.value is None:
            return NOT_AVAILABLE
        if not self.runs:  # published, or from published numbers: not more digits than were printed
            decimals = max(len(f"{x:g}".partition(".")[2]) for x in (self.value, self.std or 0.0))
            digits = max(1, min(digits, decimals))
        text = _number(self.value, digits)
        if self.std is not None:
            text += f" ± {_number(self.std, digits)}"
        if self.low is not None and self.high is not None:
            text += f" [{_number(self.low, digits)}, {_number(self.high, digits)}]"
        return text


@dataclass(frozen=True)
class Row:
    """A row: what it is of, its numbers, and the scale they are at."""

    labels: tuple[str, ...]
    source: str
    """``paper`` or ``ours``."""
    values: Mapping[str, Value]
    """By column; a column that is missing was not run, or is not in the paper."""
    seeds: str = ""
    steps: str = ""
    scale: str = ""
    command: str = ""
    """What fills the cells that were not run."""


@dataclass(frozen=True)
class Table:
    """A table of the paper, or one beside them, with ours in it."""

    name: str
    title: str
    label_names: tuple[str, ...]
    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()
    digits: int = 2
    extra: tuple[str, ...] = field(default=("seeds", "steps", "scale"))
    """What is said of every row besides its numbers."""

    @property
    def header(self) -> list[str]:
        return [*self.label_names, "source", *self.columns, *self.extra, "command for what was not run"]

    def cells(self, row: Row, link: Link | None = None) -> list[str]:
        """The texts of a row; ``link`` makes a number lead to its runs."""
        texts = []
        for column in self.columns:
            value = row.values.get(column)
            if value is None:
                texts.append(NOT_RUN if row.source == "ours" else "")
            elif link is not None and value.runs:
                texts.append(f"[{value.text(self.digits)}]({link(value)})")
            else:
                texts.append(value.text(self.digits))
        return [*row.labels, row.source, *texts, *(getattr(row, name) for name in self.extra), row.command]

    def markdown(self, link: Link | None = None) -> str:
        rows = [self.cells(row, link) for row in self.rows]
        commands = any(row.command for row in self.rows)
        header = self.header if commands else self.header[:-1]
        quoted = [[*row[:-1], f"`{row[-1]}`" if row[-1] else ""] if commands else row[:-1] for row in rows]
        notes = "".join(f"\n- {note}" for note in self.notes)
        return f"## {self.title}\n\n{markdown(header, quoted)}\n" + (f"{notes}\n" if notes else "")

    def html(self, link: Link | None = None) -> str:
        """A ``<table>`` for a page; numbers lead to their runs as in Markdown."""
        lines = ["<table>", f"<caption>{escape(self.title)}</caption>", "<thead><tr>"]
        lines += [f'<th scope="col">{escape(name)}</th>' for name in self.header] + ["</tr></thead>", "<tbody>"]
        for row in self.rows:
            texts = [f"<td>{escape(text)}</td>" for text in self.cells(row)]
            for position, column in enumerate(self.columns, len(self.label_names) + 1):
                value = row.values.get(column)
                if link is not None and value is not None and value.runs:
                    text = escape(value.text(self.digits))
                    texts[position] = f'<td><a href="{escape(link(value))}">{text}</a></td>'
            lines.append(f"<tr>{''.join(texts)}</tr>")
        return "\n".join([*lines, "</tbody>", "</table>", *(f"<p>{escape(note)}</p>" for note in self.notes)]) + "\n"

    def csv(self) -> str:
        """One line a number, with the folders of its runs."""
        file = io.StringIO()
        writer = csv.writer(file, lineterminator="\n")
        names = [*self.label_names, "source", "column", "value", "std", "low", "high", "n", "steps", "scale"]
        writer.writerow(["table", *names, "runs", "command"])
        for row in self.rows:
            for column in self.columns:
                value = row.values.get(column)
                if value is None and row.source != "ours":
                    continue
                numbers = ["", "", "", "", ""]
                if value is not None:
                    numbers = [_exact(x) for x in (value.value, value.std, value.low, value.high)]
                    numbers = [numbers[0] or NOT_AVAILABLE, *numbers[1:], "" if value.n is None else str(value.n)]
                runs = ";".join(path.as_posix() for path in value.runs) if value else ""
                command = row.command if value is None else ""
                first = [self.name, *row.labels, row.source, column, *numbers]
                writer.writerow([*first, row.steps, row.scale, runs or (NOT_RUN if value is None else ""), command])
        return file.getvalue()

    def latex(self) -> str:
        """A ``tabular`` for a paper; the commands stay in the other forms."""
        header = self.header[:-1]
        rows = [self.cells(row)[:-1] for row in self.rows]
        text = len(self.label_names) + 1
        columns = "l" * text + "r" * len(self.columns) + "l" * len(self.extra)
        lines = [f"% {self.title}", rf"\begin{{tabular}}{{{columns}}}", r"\hline"]
        lines += [" & ".join(map(_tex, header)) + r" \\", r"\hline"]
        lines += [" & ".join(map(_tex, row)) + r" \\" for row in rows]
        lines += [r"\hline", r"\end{tabular}", *(f"% {note}" for note in self.notes)]
        return "\n".join(lines) + "\n"


def _number(value: float, digits: int) -> str:
    text = f"{value:.{digits}f}"
    return text.removeprefix("-") if float(text) == 0 else text.replace("-", "−")


def _exact(value: float | None) -> str:
    return "" if value is None else f"{value:.10g}"


_TEX = {"&": r"\&", "%": r"\%", "_": r"\_", "#": r"\#", "±": r"$\pm$", "−": "$-$", "×": r"$\times$", "→": r"$\to$"}


def _tex(text: str) -> str:
    return "".join(_TEX.get(letter, letter) for letter in text)


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table; the first column is text and the others are aligned to the right."""
    widths = [max(len(row[column]) for row in [header, *rows]) for column in range(len(header))]

    def line(cells: Sequence[str]) -> str:
        padded = [
            cell.ljust(w) if i == 0 else cell.rjust(w) for i, (cell, w) in enumerate(zip(cells, widths, strict=True))
        ]
        return f"| {' | '.join(padded)} |"

    rule = [("-" * w) if i == 0 else ("-" * (w - 1) + ":") for i, w in enumerate(widths)]
    return "\n".join([line(header), line(rule), *(line(row) for row in rows)])
