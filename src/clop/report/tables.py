"""Tables as Markdown, aligned so that they read well in a terminal too."""

from collections.abc import Sequence


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
