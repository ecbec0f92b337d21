"""Where each number comes from: the runs of every cell, with command, commit, machine and seed."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from clop.report.outcomes import Cell, cells
from clop.report.page import classifiers
from clop.report.page.html import escape, spaced, table
from clop.report.page.links import Group, Links, run_anchor
from clop.report.page.results import cell_anchor
from clop.report.runs import Problem, Runs


def section(runs: Runs, links: Links) -> str:
    """A foldable list for each number, and the runs that are in no table."""
    parts = []
    seen: set[str] = set()

    def ids(paths: Iterable[Path]) -> list[str]:
        """A run that is in several lists has its place in the first."""
        names = [run_anchor(path) for path in paths]
        new = ["" if name in seen else f'id="{name}"' for name in names]
        seen.update(names)
        return new

    for cell in cells(runs.agents):
        rows = [
            [
                str(run.seed),
                f"{stage.train.mean:.2f} <small>± {stage.train.standard_error or 0:.2f}</small>",
                f"{stage.test.mean:.2f} <small>± {stage.test.standard_error or 0:.2f}</small>",
                f"{stage.test.episodes}, {escape(stage.test.protocol)}",
                *_origin(run.about, str(run.path)),
            ]
            for run, stage in zip(cell.runs, cell.stages, strict=True)
        ]
        title = _title(cell)
        header = ["seed", "training levels", "unseen levels", "episodes", *_HEADER]
        inside = _table(header, rows, ids(run.path for run in cell.runs))
        parts.append(_details(cell_anchor(cell), title, cell.scale, inside))
    for (task, scale, label), same in classifiers.groups(runs.classifiers).items():
        rows = [
            [
                str(run.summary.seed),
                ", ".join(f"{name} {value:.1f}" for name, value in run.summary.test_accuracy.items()),
                *_origin(run.about, str(run.path)),
            ]
            for run in same
        ]
        place = classifiers.group_anchor(task, scale, label)
        inside = _table(["seed", "test, %", *_HEADER], rows, ids(run.path for run in same))
        parts.append(_details(place, f"{task}, {label}", scale, inside))
    parts.append(_records({**runs.saliency, **runs.benchmarks}))
    if not any(parts) and not runs.problems:
        return ""
    return f"""<section id="runs">
<h2>Runs</h2>
<p>What every number above is made of. ± is the standard error over episodes of one agent.</p>
{"".join(parts)}
{links.html()}
{_problems(runs.problems)}
</section>"""


def groups(runs: Runs) -> list[Group]:
    """The lists of the section, for links to them."""
    agents = [
        Group(cell_anchor(cell), f"{_title(cell)}; {cell.scale}", frozenset(run.path for run in cell.runs))
        for cell in cells(runs.agents)
    ]
    found = classifiers.groups(runs.classifiers)
    return agents + [
        Group(
            classifiers.group_anchor(task, scale, label),
            f"{task}, {label}; {scale}",
            frozenset(run.path for run in same),
        )
        for (task, scale, label), same in found.items()
    ]


def _title(cell: Cell) -> str:
    return f"{cell.game}, {cell.variant}, {spaced(cell.env_steps)} steps"


_HEADER = ("command", "commit", "machine", "folder")
_SAID_ONCE = ("episodes", "commit", "machine")


def _table(header: Sequence[str], rows: Sequence[Sequence[str]], ids: Sequence[str]) -> str:
    """What is the same in all rows is said once, above them."""
    same = [k for k, name in enumerate(header) if name in _SAID_ONCE and len({row[k] for row in rows}) == 1]
    said = "; ".join(f"{header[k]}: {rows[0][k]}" for k in same)
    left = [k for k in range(len(header)) if k not in same]
    return table([header[k] for k in left], [[row[k] for k in left] for row in rows], said, ids)


def _origin(about: Mapping[str, Any], path: str) -> list[str]:
    machine = about.get("machine", {})
    versions = machine.get("versions", {})
    text = [machine.get("processor"), f"torch {versions['torch']}" if versions.get("torch") else None]
    started = str(about.get("started", ""))[:10]
    commit = about.get("commit") or "not known"
    return [
        f"<code>{escape(about.get('command') or 'not known')}</code>",
        f'<code title="{escape(commit)}">{escape(commit[:9] + ("-dirty" if commit.endswith("-dirty") else ""))}</code>',
        escape(", ".join(filter(None, [*text, started]))) or "not known",
        f"<code>{escape(path)}</code>",
    ]


def _details(place: str, title: str, scale: str, inside: str) -> str:
    return (
        f'<details id="{place}" class="runs"><summary>{escape(title)} <small>{escape(scale)}</small></summary>'
        f"{inside}</details>"
    )


def _records(records: Mapping[Path, Mapping[str, Any]]) -> str:
    """Measurements that are no runs."""
    if not records:
        return ""
    rows = [[escape(str(about["kind"])), *_origin(about, str(path))] for path, about in records.items()]
    ids = [f'id="{run_anchor(path)}"' for path in records]
    return _details("records", "Records of measurements", "", table(["what", *_HEADER[:-1], "file"], rows, "", ids))


def _problems(problems: Sequence[Problem]) -> str:
    if not problems:
        return ""
    rows = [[f"<code>{escape(str(each.path))}</code>", escape(each.kind), escape(each.text)] for each in problems]
    return f"<h3>Runs in no table</h3>{table(['folder', 'why', 'detail'], rows)}"
