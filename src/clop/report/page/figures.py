"""Figures of reports on the page: found beside their tables, copied into the page's folder."""

import shutil
from collections.abc import Iterable
from pathlib import Path

from clop.report.page.html import escape

FOLDER = "figures"


def find_figures(paths: Iterable[Path], out: Path) -> list[Path]:
    """The SVG files of reports (``clop report``) at these paths and below, except in the page's own folder."""
    found = []
    for path in paths:
        folders = [path / FOLDER, *sorted(path.rglob(f"*/{FOLDER}"))] if path.is_dir() else []
        for folder in folders:
            if (folder.parent / "tables").is_dir() and not folder.resolve().is_relative_to(out.resolve()):
                found += sorted(folder.glob("*.svg"))
    return list(dict.fromkeys(found))


def copy_figures(figures: Iterable[Path], out: Path) -> None:
    """Into the page's folder; of two reports, the later one's figure of a name stays."""
    for figure in figures:
        (out / FOLDER).mkdir(parents=True, exist_ok=True)
        shutil.copyfile(figure, out / FOLDER / figure.name)


def section(figures: Iterable[Path]) -> str:
    """The section of the page; empty without a figure."""
    names = dict.fromkeys(figure.name for figure in figures)
    shown = "".join(
        f'<figure><img src="{FOLDER}/{escape(name)}" loading="lazy" alt="{escape(_title(name))}">'
        f"<figcaption>{escape(_title(name))}</figcaption></figure>"
        for name in names
    )
    if not shown:
        return ""
    return f"""<section id="figures">
<h2>Figures</h2>
<p>The figures of the report: those of the paper that hold a measurement, and others beside them.</p>
<div class="videos">{shown}</div>
</section>"""


def _title(name: str) -> str:
    return name.removesuffix(".svg").replace("_", " ")
