"""``clop report``: every table and figure from runs, in a folder. The same runs give the same bytes."""

import hashlib
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

from clop.errors import UsageError, unknown_name
from clop.files import write_atomic
from clop.report import claims
from clop.report.claim_evidence import Evidence
from clop.report.claim_rules import RULES
from clop.report.claim_words import BEYOND, TESTS
from clop.report.evidence import EVIDENCE_TABLES
from clop.report.evidence_figures import EVIDENCE_FIGURES
from clop.report.figures import save
from clop.report.modern_figures import OTHER_FIGURES
from clop.report.paper_figures import PAPER_FIGURES, PaperFigure
from clop.report.paper_tables import OTHER_TABLES, PAPER_TABLES
from clop.report.runs import Runs
from clop.report.tables import Table, Value, markdown

TABLES: dict[str, Callable[[Runs], Table]] = {**PAPER_TABLES, **OTHER_TABLES}
FIGURES: dict[str, PaperFigure] = {figure.name: figure for figure in (*PAPER_FIGURES, *OTHER_FIGURES)}
_ASKED_FOR = {figure.name: figure for figure in EVIDENCE_FIGURES}
NAMES = tuple(dict.fromkeys((*TABLES, *EVIDENCE_TABLES, *FIGURES, *_ASKED_FOR, "claims")))
_KINDS = ("svg", "png")


@dataclass
class Report:
    """A report being written in a folder."""

    runs: Runs
    out: Path
    written: list[Path] = field(default_factory=list)
    linked: dict[str, tuple[Path, ...]] = field(default_factory=dict)
    """Runs of the numbers that come from several, by the name under which ``runs.md`` lists them."""

    def link(self, value: Value) -> str:
        """Where a number leads: to its run, or to the list of its runs."""
        if len(value.runs) == 1:
            return self._relative(value.runs[0])
        name = "r" + hashlib.sha256("\n".join(path.as_posix() for path in value.runs).encode()).hexdigest()[:10]
        self.linked[name] = value.runs
        return f"../runs.md#{name}"

    def _relative(self, path: Path, start: str = "tables") -> str:
        return quote(Path(os.path.relpath(path, self.out / start)).as_posix(), safe="/()=+,:@~")

    def write(self, name: str, text: str) -> None:
        path = self.out / name
        write_atomic(path, lambda draft: draft.write_text(text))
        self.written.append(path)

    def table(self, name: str) -> Table:
        table = (TABLES | EVIDENCE_TABLES)[name](self.runs)
        self.write(f"tables/{name}.md", table.markdown(self.link))
        self.write(f"tables/{name}.csv", table.csv())
        self.write(f"tables/{name}.tex", table.latex())
        return table

    def figure(self, name: str) -> list[str]:
        """Draw a figure at every scale there is, and return the names of the drawings."""
        names = []
        for number, drawn in enumerate((FIGURES | _ASKED_FOR)[name].draw(self.runs), 1):
            names.append(name if number == 1 else f"{name}-{number}")
            for kind in _KINDS:
                path = self.out / "figures" / f"{names[-1]}.{kind}"
                save(drawn, path)
                drawn.set_layout_engine("none")  # which the first of them has found
                self.written.append(path)
        return names

    def index(self, tables: Mapping[str, Table], figures: Mapping[str, Sequence[str]]) -> str:
        """The page that leads to all others, with what was found and what was left out."""
        lines = ["# Report", "", found_text(self.runs), ""]
        if self.runs.problems:
            lines += ["In no table or figure:", ""]
            lines += [
                f"- {p.kind}: [{p.path}]({self._relative(p.path, '.')}), {p.text}" for p in self.runs.problems
            ] + [""]
        lines += ["The paper's claims, and what these runs say of them: [claims.md](claims.md)", ""]
        if tables:
            lines += ["## Tables", ""]
        for name, table in tables.items():
            ours = [row for row in table.rows if row.source == "ours"]
            filled = sum(len(row.values) for row in ours)
            kinds = f"[Markdown](tables/{name}.md), [CSV](tables/{name}.csv), [LaTeX](tables/{name}.tex)"
            lines.append(f"- {table.title}: {filled or 'no'} {_plural('number', filled)} of ours. {kinds}")
        if figures:
            lines += ["", "## Figures", ""]
        for name, drawn in figures.items():
            figure = FIGURES[name]
            if not drawn:
                lines += [f"### {figure.title}", "", f"Not run: `{figure.command}`", ""]
                continue
            lines += [f"### {figure.title}", ""]
            lines += [f"![{figure.title}](figures/{each}.svg)" for each in drawn] + [""]
        return "\n".join(lines).rstrip() + "\n"

    def run_list(self) -> str:
        """Every run with its command, and the groups of runs that numbers come from."""
        rows = []
        for run in self.runs.agents:
            seed, about = str(run.seed), run.about
            what = (f"{run.game}, {run.variant}", seed, run.scale)
            rows.append([*_about(self._relative(run.path, "."), run.path, about), *what])
        for classifier in self.runs.classifiers:
            summary = classifier.summary
            what = (f"{summary.task}, {summary.label}", str(summary.seed), summary.scale)
            rows.append([*_about(self._relative(classifier.path, "."), classifier.path, classifier.about), *what])
        text = "# Runs\n\n" + markdown(["run", "command", "commit", "what", "seed", "scale"], rows) + "\n"
        if self.linked:
            text += "\n# Numbers of several runs\n"
        for name, paths in sorted(self.linked.items()):
            links = ", ".join(f"[{path.as_posix()}]({self._relative(path, '.')})" for path in paths)
            text += f'\n<a id="{name}"></a>{links}\n'
        return text


def _about(link: str, path: Path, about: Mapping[str, object]) -> tuple[str, str, str]:
    commit = str(about.get("commit") or "")
    return f"[{path.as_posix()}]({link})", f"`{about['command']}`" if "command" in about else "", commit[:10]


def found_text(runs: Runs) -> str:
    """How much was found."""
    agents, benchmarks = len(runs.agents), len(runs.benchmarks)
    text = f"Made from {agents} {_plural('run', agents)} of agents, {len(runs.classifiers)} of classifiers, "
    text += f"{benchmarks} {_plural('record', benchmarks)} of benchmarks."
    if runs.problems:
        counts = {kind: sum(p.kind == kind for p in runs.problems) for kind in ("unfinished", "damaged", "duplicate")}
        text += " Left out: " + ", ".join(f"{count} {kind}" for kind, count in counts.items() if count) + "."
    return text


def _plural(word: str, count: int) -> str:
    return word if count == 1 else f"{word}s"


def claims_page(runs: Runs, paths: Iterable[Path | str], out: Path) -> str:
    """The paper's claims with what these runs say of them."""
    command = f"clop report {' '.join(Path(path).as_posix() for path in paths)} --what claims --out {out.as_posix()}"
    return claims.page(claims.verdicts(Evidence(runs), RULES, TESTS, BEYOND), out, command)


def build(paths: Iterable[Path | str], out: Path | str, what: Sequence[str] = ()) -> Report:
    """Write the tables and figures of the runs at these paths and below.

    Args:
        paths: Runs, sweeps, or folders of them.
        out: The folder to write.
        what: Names of single tables and figures; all of them if none is given.
    """
    for name in what:
        if name not in NAMES:
            raise UsageError(unknown_name("table or figure", name, NAMES))
    paths = list(paths)
    report = Report(Runs.find(paths), Path(out))
    wanted = [name for name in (*TABLES, *EVIDENCE_TABLES) if name in what] if what else TABLES
    tables = {name: report.table(name) for name in wanted}
    drawn = [name for name in (*FIGURES, *_ASKED_FOR) if name in what] if what else FIGURES
    figures = {name: report.figure(name) for name in drawn}
    if not what or "claims" in what:
        report.write("claims.md", claims_page(report.runs, paths, report.out))
    if tables or figures:
        report.write("runs.md", report.run_list())
    if not what:
        report.write("README.md", report.index(tables, figures))
    return report
