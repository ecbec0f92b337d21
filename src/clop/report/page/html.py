"""Pieces of HTML."""

import hashlib
from collections.abc import Iterable, Sequence
from html import escape
from itertools import repeat

from clop.report.stats import Estimate

__all__ = ["anchor", "escape", "link", "number", "paragraph", "spaced", "table", "whole"]


def table(
    header: Sequence[str], rows: Iterable[Sequence[str]], caption: str = "", attributes: Sequence[str] | None = None
) -> str:
    """A table that scrolls sideways where it is wider than the page; header and cells are HTML already.

    Args:
        header: Of the columns.
        rows: Each as long as the header.
        caption: Above it.
        attributes: Of the rows, such as ``id="place"``.
    """
    head = "".join(f'<th scope="col">{cell}</th>' for cell in header)
    body = "".join(_row(row, attribute) for row, attribute in zip(rows, attributes or repeat(""), strict=False))
    title = f"<caption>{caption}</caption>" if caption else ""
    inside = f"{title}<thead><tr>{head}</tr></thead><tbody>{body}</tbody>"
    return f'<div class="wide" tabindex="0"><table>{inside}</table></div>'


def _row(cells: Sequence[str], attribute: str) -> str:
    first, *rest = cells
    opening = f"tr {attribute}" if attribute else "tr"
    return f'<{opening}><th scope="row">{first}</th>{"".join(f"<td>{cell}</td>" for cell in rest)}</tr>'


def number(estimate: Estimate | None, digits: int = 2) -> str:
    """``4.31 <span>[3.9, 4.7]</span>``; a dash for what is not known."""
    if estimate is None or estimate.value != estimate.value:
        return "–"
    text = _signed(estimate.value, digits)
    if estimate.low is None or estimate.high is None:
        return text
    return f'{text} <span class="interval">[{_signed(estimate.low, digits)}, {_signed(estimate.high, digits)}]</span>'


def _signed(value: float, digits: int) -> str:
    return f"{value:.{digits}f}".replace("-", "−")


def link(target: str, text: str) -> str:
    """To a place on the page."""
    return f'<a href="#{target}">{text}</a>'


def anchor(kind: str, *words: object) -> str:
    """The name of a place on the page, which follows from what it is about."""
    digest = hashlib.sha256("\n".join(map(str, words)).encode()).hexdigest()
    return f"{kind}-{digest[:10]}"


def paragraph(text: str) -> str:
    return f"<p>{whole(text)}</p>"


def whole(text: str) -> str:
    """Text whose percent signs stay with their numbers."""
    return escape(text).replace(" %", "\u00a0%")


def spaced(count: int) -> str:
    """``1 000 000``, with narrow spaces that do not break."""
    return f"{count:,}".replace(",", "\u202f")
