"""The report's tables on the page: ours beside published, and what was not run."""

from collections.abc import Mapping, Sequence

from clop.report.page.html import escape, table, whole
from clop.report.page.links import Links
from clop.report.tables import NOT_RUN, Row, Table

_SEVERAL = 2


def section(tables: Mapping[str, Table], links: Links) -> str:
    """All tables that hold a number of ours, folded, and the names of the others."""
    filled = {name: each for name, each in tables.items() if has_numbers(each)}
    if not filled:
        return ""
    shown = "".join(details(name, each, links) for name, each in filled.items())
    rest = [escape(each.title) for name, each in tables.items() if name not in filled]
    others = f'<p class="faint">Not run yet: {"; ".join(rest)}.</p>' if rest else ""
    return f"""<section id="tables">
<h2>Tables</h2>
<p>The paper’s tables with ours beside the published numbers, at the scale that each row names; and tables that the
paper does not have. A cell that was not run says so.</p>
{shown}
{others}
</section>"""


def has_numbers(each: Table) -> bool:
    """Whether one of them is ours."""
    return _count(each) > 0


def _count(each: Table) -> int:
    return sum(len(row.values) for row in each.rows if row.source == "ours")


def details(name: str, each: Table, links: Links, title: str = "") -> str:
    """A table that is folded, with its notes. A command that fills all of its gaps is said once."""
    count = _count(each)
    commands = {row.command for row in each.rows if row.command}
    left_out = {
        k for k, text in enumerate(each.header) if text == "source" and all(r.source == "ours" for r in each.rows)
    }
    notes = [whole(note) for note in each.notes]
    if len(commands) < _SEVERAL:
        left_out.add(len(each.header) - 1)
        notes += [f"What was not run: <code>{escape(command)}</code>" for command in commands]
    listed = f'<ul class="faint">{"".join(f"<li>{note}</li>" for note in notes)}</ul>' if notes else ""

    def kept(cells: Sequence[str]) -> list[str]:
        return [cell for k, cell in enumerate(cells) if k not in left_out]

    inside = table(kept([escape(text) for text in each.header]), [kept(_row(each, row, links)) for row in each.rows])
    title = f"{escape(title or each.title)} <small>{count} {'number' if count == 1 else 'numbers'} of ours</small>"
    return f'<details class="report" id="{escape(name)}"><summary>{title}</summary>{inside}{listed}</details>'


def _row(each: Table, row: Row, links: Links) -> list[str]:
    cells = []
    for column in each.columns:
        value = row.values.get(column)
        if value is not None:
            cells.append(links.to(value.runs, escape(value.text(each.digits))))
        elif row.source == "ours":
            cells.append(f'<span class="faint">{NOT_RUN}</span>')
        else:
            cells.append("")
    extra = (_extra(name, getattr(row, name)) for name in each.extra)
    command = f"<code>{escape(row.command)}</code>" if row.command else ""
    return [*map(escape, row.labels), escape(row.source), *cells, *extra, command]


def _extra(name: str, text: str) -> str:
    return escape(text) if name == "scale" or not text else f'<span class="whole">{escape(text)}</span>'
