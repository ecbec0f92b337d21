"""What networks look at, on the page: how concentrated their heat is, from records of ``clop saliency --measure``."""

from collections.abc import Iterable
from pathlib import Path

from clop.experiments.record import RunRecord
from clop.report import saliency
from clop.report.page.html import escape, paragraph, table
from clop.report.page.links import Links


def section(paths: Iterable[Path], links: Links) -> str:
    """The section of the page; empty without a record."""
    shown = "".join(_article(path, RunRecord.read(path), links) for path in paths)
    if not shown:
        return ""
    return f"""<section id="saliency">
<h2>What agents look at</h2>
<p>How concentrated the heat of Grad-CAM is on the deepest map, beside networks with random weights, which are the
control. An entropy of 1 is the same heat everywhere.</p>
{shown}
</section>"""


def _article(path: Path, record: RunRecord, links: Links) -> str:
    rows = [
        [escape(name), seeds, *(links.to([path], escape(cell)) for cell in numbers)]
        for name, seeds, *numbers in (group.cells for group in saliency.groups(record))
    ]
    decided = saliency.decisions(record)
    claims = [
        [
            escape(pair),
            escape(claim),
            *(links.to([path], number) for number in numbers),
            f'<span class="whole">{count}</span>',
            f'<span class="outcome">{escape(decision)}</span>',
        ]
        for pair, claim, *numbers, count, decision in decided
    ]
    outcomes = [f'data-outcome="{escape(row[-1])}"' for row in decided]
    title = record.metrics["source"].partition(",")
    return (
        f'<article class="game"><h3>{escape(title[0])} <small>{escape(title[2].strip())}</small></h3>'
        f"{table(saliency.HEADER, rows)}{paragraph(saliency.note(record))}"
        f"{table(saliency.DECISION_HEADER, claims, attributes=outcomes)}{paragraph(saliency.DECISION_NOTE)}"
        f"{_networks(record, links)}</article>"
    )


def _networks(record: RunRecord, links: Links) -> str:
    """Each network with its run, if that is on the page too."""
    rows = [
        [
            escape(row["label"]),
            str(row["seed"]),
            *map(_mean, (row["entropy"], row["half_mass"])),
            _run(row["run"], links),
        ]
        for row in record.metrics["networks"]
    ]
    inside = table(["network", "seed", "entropy of the map", "share that holds half of it", "run"], rows)
    return f"<details><summary>Each of the {len(rows)} networks</summary>{inside}</details>"


def _mean(found: dict[str, float | None]) -> str:
    return "–" if found["mean"] is None else f"{found['mean']:.3f}"


def _run(path: str, links: Links) -> str:
    known = links.named(Path(path).name) if path else None
    text = f"<code>{escape(path)}</code>" if path else "–"
    return text if known is None else links.to([known], text)
