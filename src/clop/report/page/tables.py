"""The report's tables on the page: ours beside published, and what was not run."""

from collections.abc import Mapping

from clop.report.page.html import escape, table
from clop.report.page.links import Links
from clop.report.tables import NOT_RUN, Row, Table


def section(tables: Mapping[str, Table], links: Links) -> str:
    """All tables that hold a number of ours, folded, and the names of the others."""
    filled = {name: each for name, each in tables.items() if _count(each)}
    if not filled:
        return ""
    shown = "".join(_details(name, each, links) for name, each in filled.items())
    rest = [escape(each.title) for name, each in tables.items() if name not in filled]
    others = f'<p class="faint">Not run yet: {"; ".join(rest)}.</p>' if rest else ""
    return f"""<section id="tables">
<h2>Tables</h2>
<p>The paper’s tables with ours beside the published numbers, at the scale that each row names; and tables that the
paper does not have. A cell that was not run says so.</p>
{shown}
{others}
</section>"""


def _count(each: Table) -> int:
    return sum(len(row.values) for row in each.rows if row.source == "ours")


def _details(name: str, each: Table, links: Links) -> str:
    count = _count(each)
    notes = "".join(f"<li>{escape(note)}</li>" for note in each.notes)
    listed = f'<ul class="faint">{notes}</ul>' if notes else ""
    rows = [_row(each, row, links) for row in each.rows]
    inside = table([escape(title) for title in each.header], rows)
    title = f"{escape(each.title)} <small>{count} {'number' if count == 1 else 'numbers'} of ours</small>"
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
    extra = (escape(getattr(row, name)) for name in each.extra)
    command = f"<code>{escape(row.command)}</code>" if row.command else ""
    return [*map(escape, row.labels), escape(row.source), *cells, *extra, command]
