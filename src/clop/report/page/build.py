"""Write the page: one HTML file that asks for nothing, and folders of videos and figures beside it."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from clop.errors import UsageError
from clop.files import write_atomic
from clop.report.build import TABLES
from clop.report.claim_evidence import Evidence
from clop.report.claim_rules import RULES
from clop.report.claim_words import BEYOND, TESTS
from clop.report.claims import verdicts
from clop.report.page import (
    claims,
    classifiers,
    evidence,
    figures,
    layer,
    provenance,
    results,
    saliency,
    summary,
    tables,
    videos,
)
from clop.report.page.gains import all_gains
from clop.report.page.html import escape
from clop.report.page.links import Links
from clop.report.runs import Runs

MODULES = ("sampler", "layer", "curves", "claims", "main")
"""Scripts, each before those that import from it."""
_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src 'self' file: data: "
    "blob:; media-src 'self' file:"
)
"""The browser itself refuses every request but for the videos and figures beside the page."""


_SHORT = {"layer": "Layer", "evidence": "Evidence", "results": "Curves", "agents": "Videos", "saliency": "Saliency"}
"""Sections whose titles are long for a line of links."""


@dataclass(frozen=True)
class Page:
    """What was written."""

    path: Path
    """The file to open."""
    runs: int
    videos: int


def write_page(paths: Sequence[Path], out: Path) -> Page:
    """Write the page of runs, sweeps, reports, records and videos at these paths and below.

    Args:
        paths: Where to look.
        out: The folder; what lies in it stays, but for the page itself.
    """
    if out.exists() and not out.is_dir():
        raise UsageError(f"the page is a folder, but {out} is a file; name another with --out")
    for path in paths:
        if not path.exists():
            raise UsageError(f"{path} does not exist; expected a run, a sweep, or a folder that holds some")
    found = Runs.find(path for path in paths if path.suffix not in videos.SUFFIXES)
    shown, drawn = videos.find_videos(paths, out), figures.find_figures(paths, out)
    links = Links(provenance.groups(found))
    count = len(found.agents) + len(found.classifiers)
    gains = all_gains(found)
    decided = verdicts(Evidence(found), RULES, TESTS, BEYOND) if count else []
    sections = [
        layer.section(),
        evidence.section(gains, found, links),
        results.section(found.agents),
        classifiers.section(found.classifiers),
        videos.section(shown, links),
        saliency.section(found.saliency, links),
        claims.section(decided, links),
        figures.section(drawn),
        tables.section({name: make(found) for name, make in TABLES.items()} if count else {}, links),
    ]
    sections.append(provenance.section(found, links))  # last, when all links are known
    html = _document(summary.header(count, gains, decided), [section for section in sections if section])
    videos.copy_videos(shown, out)
    figures.copy_figures(drawn, out)
    path = out / "index.html"
    write_atomic(path, lambda draft: draft.write_text(html, encoding="utf-8"))
    return Page(path, count, len(shown))


def bundle() -> str:
    """All scripts as one module: browsers load no file that a file names."""
    folder = files("clop.report.page") / "assets"
    parts = [(folder / f"{name}.mjs").read_text(encoding="utf-8") for name in MODULES]
    text = "\n".join(re.sub(r"^import .*\n", "", part, flags=re.MULTILINE) for part in parts)
    return re.sub(r"^export (?=function|const|class)", "", text, flags=re.MULTILINE).replace("</", "<\\/")


def _document(header: str, sections: Sequence[str]) -> str:
    style = (files("clop.report.page") / "assets" / "style.css").read_text(encoding="utf-8")
    titles = [re.search(r'<section id="(.*?)">\s*<h2>(.*?)</h2>', section) for section in sections]
    links = "".join(f'<a href="#{found[1]}">{_SHORT.get(found[1], found[2])}</a>' for found in titles if found)
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{escape(_POLICY)}">
<title>CLOP: swapping neighbours to generalise</title>
<style>
{style}</style>
</head>
<body>
{header}
<nav aria-label="sections"><div>{links}
<button type="button" id="theme" class="needs-js">light / dark</button></div></nav>
<main>
{"".join(sections)}
</main>
<footer><p>Written by <code>clop page</code>. The layer is that of Bertoin and Rachelson, <i>Local Feature Swapping for
Generalization in Reinforcement Learning</i> (2022); numbers called the paper’s are theirs. This page asks for nothing
from anywhere.</p></footer>
<script type="module">
{bundle()}</script>
</body>
</html>
"""
