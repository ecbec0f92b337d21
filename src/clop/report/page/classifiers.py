"""Accuracies of classifiers on the page."""

from collections.abc import Sequence

from clop.report import stats
from clop.report.page.html import anchor, escape, link, number, table
from clop.report.published import supervised
from clop.report.runs import VisionRun


def groups(runs: Sequence[VisionRun]) -> dict[tuple[str, str, str], list[VisionRun]]:
    """Runs by task, scale and label, which differ in their seeds."""
    found: dict[tuple[str, str, str], list[VisionRun]] = {}
    for run in sorted(runs, key=lambda run: (run.summary.task, run.summary.scale, run.summary.label, run.summary.seed)):
        found.setdefault((run.summary.task, run.summary.scale, run.summary.label), []).append(run)
    return found


def section(runs: Sequence[VisionRun]) -> str:
    """A table for each task and scale."""
    found = groups(runs)
    if not found:
        return ""
    tables = [_table(task, scale, found) for task, scale in dict.fromkeys(key[:2] for key in found)]
    return f"""<section id="classifiers">
<h2>Classifiers</h2>
<p>Accuracy in&nbsp;% after training, in evaluation mode; in brackets intervals of 95&nbsp;% over seeds, from
three seeds on.</p>
{"".join(tables)}
</section>"""


def _table(task: str, scale: str, found: dict[tuple[str, str, str], list[VisionRun]]) -> str:
    papers = supervised(task)
    same = {label: runs for (t, s, label), runs in found.items() if (t, s) == (task, scale)}
    tests = list(next(iter(same.values()))[0].summary.test_accuracy)
    has_paper = any(not runs[0].summary.changed and runs[0].summary.method in papers for runs in same.values())
    rows = []
    for label, runs in sorted(same.items(), key=lambda item: (item[0] != "plain", item[0])):
        target = group_anchor(task, scale, label)
        columns = [[run.summary.test_accuracy[name] for run in runs] for name in tests]
        columns.append([run.summary.train_accuracy for run in runs])
        row = [escape(label), str(len(runs))]
        row += [link(target, number(stats.student_estimate(values), 1)) for values in columns]
        if has_paper:
            summary = runs[0].summary
            paper = None if summary.changed else papers.get(summary.method)
            row.append("–" if paper is None else f"{escape(str(paper.test))}<br><small>{escape(paper.scale)}</small>")
        rows.append(row)
    header = ["method", "seeds", *(f"test on {escape(name)}" for name in tests), "train"]
    if has_paper:
        header.append("paper: test")
    return (
        f'<article class="game"><h3>{escape(task)} <small>{escape(scale)}</small></h3>{table(header, rows)}</article>'
    )


def group_anchor(task: str, scale: str, label: str) -> str:
    """Where the runs of a group are listed."""
    return anchor("classifiers", task, scale, label)
