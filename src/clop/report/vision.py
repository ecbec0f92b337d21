"""Accuracies of classifiers beside the published ones, from run folders."""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clop.errors import UsageError
from clop.experiments.run_folder import RunFolder
from clop.report import figures
from clop.report.published import Accuracy, Published, supervised
from clop.report.tables import markdown

_TEST = "test_accuracy_"
_AS_IN_THEIR_CODE = "dropout(style=channel)"
_OF_THE_PAPER = {
    "dropout": "The paper describes dropout of the dense part, its code drops channels of the last map; the published "
    "number, which stands beside both, is most likely of channels.",
    "mixup": "The paper's code mixes the labels of mixup and forgets the images; ours mixes both.",
}
"""What to know of published numbers, by method."""


@dataclass(frozen=True)
class Group:
    """Runs that differ in their seed only."""

    method: str
    label: str
    scale: str
    position: int | None
    runs: Sequence[Mapping[str, Any]]
    """Their summaries."""

    def values(self, metric: str) -> list[float]:
        return [run[metric] for run in self.runs]

    def accuracy(self, metric: str) -> Accuracy:
        """Mean, and standard deviation over seeds if there are several."""
        values = self.values(metric)
        return Accuracy(statistics.mean(values), statistics.stdev(values) if len(values) > 1 else None)

    @property
    def tests(self) -> list[str]:
        return [name.removeprefix(_TEST) for name in self.runs[0] if name.startswith(_TEST)]


def read_runs(task: str, paths: Iterable[Path]) -> tuple[list[Group], list[Path]]:
    """The complete runs on a task in these folders and below, in groups of the same settings; and the others."""
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    unfinished = []
    for path in paths:
        folders = [path] if (path / "config.json").exists() else sorted(p.parent for p in path.rglob("config.json"))
        if not folders:
            raise UsageError(f"{path} holds no run: it has no config.json, nor has a folder below it")
        for folder in [RunFolder.open(where, "vision") for where in folders]:
            if folder.config["task"] != task:
                raise UsageError(f"{folder.path} holds a run on {folder.config['task']}, expected one on {task}")
            summary = folder.summary
            if summary is None:
                unfinished.append(folder.path)
            else:
                found.setdefault((summary["scale"], summary["label"]), []).append(summary)
    groups = [Group(runs[0]["method"], name, scale, runs[0]["position"], runs) for (scale, name), runs in found.items()]
    for group in groups:
        seeds = group.values("seed")
        if len(set(seeds)) < len(seeds):
            raise UsageError(
                f"two runs of {group.label} at {group.scale} have the same seed, so they are one run twice"
            )
    return sorted(groups, key=lambda group: (group.scale, group.method != "plain", group.label)), unfinished


def table(task: str, groups: Sequence[Group]) -> str:
    """Ours beside published, the scale of each in the same row, and who is best at each scale."""
    if not groups:
        raise UsageError(f"none of these runs on {task} has come to its end yet")
    published = supervised(task)
    tests = groups[0].tests
    header = ["method", *(f"test on {name}, %" for name in tests), "train, %", "running, %", "runs", "scale"]
    if published:
        header += ["paper: test, %", "paper: running, %", "paper: scale"]
    rows = []
    for group in groups:
        metrics = [f"{_TEST}{name}" for name in tests] + ["train_accuracy", "running_accuracy"]
        row = [group.label, *(_text(group.accuracy(metric)) for metric in metrics), str(len(group.runs)), group.scale]
        if published:
            paper = _published(group, published)
            row += ["", "", ""] if paper is None else [str(paper.test), str(paper.train or ""), paper.scale]
        rows.append(row)
    note = (
        "Accuracy in %, mean ± standard deviation over runs with different seeds. Train is in evaluation mode after "
        "training; running is over the last epoch in training mode, which is what the paper reports."
    )
    shown = {group.method for group in groups if published and _published(group, published)}
    note += "".join(f"\n{text}" for method, text in _OF_THE_PAPER.items() if method in shown)
    return f"{markdown(header, rows)}\n\n{note}\n" + "".join(f"{line}\n" for line in _verdicts(groups))


def _published(group: Group, published: Mapping[str, Published]) -> Published | None:
    """The paper's number, unless the settings are not the paper's."""
    return published.get(group.method) if group.label in (group.method, _AS_IN_THEIR_CODE) else None


def accuracy_figure(task: str, groups: Sequence[Group], path: Path) -> None:
    """Bars of the first test set at one scale, beside the published ones."""
    groups = _one_scale(groups)
    published = supervised(task)
    (test, *_) = groups[0].tests
    papers = {group.label: paper for group in groups if (paper := _published(group, published))}
    paper_scale = next((paper.scale for paper in papers.values()), "not in the paper")
    figures.save(
        figures.accuracies_beside_published(
            f"{task}: accuracy on {test}",
            {group.label: group.values(f"{_TEST}{test}") for group in groups},
            {label: (paper.test.mean, paper.test.std) for label, paper in papers.items()},
            (f"ours: {groups[0].scale}, {_count(groups)}", f"paper: {paper_scale}"),
        ),
        path,
    )


def depth_figure(task: str, groups: Sequence[Group], path: Path) -> None:
    """Accuracy on the first test set against the position of CLOP, at one scale."""
    groups = _one_scale(groups)
    (test, *_) = groups[0].tests
    metric = f"{_TEST}{test}"
    positions: dict[int, list[float]] = {}
    for group in groups:
        if group.position is not None and (group.label == "clop" or _is_only_moved(group)):
            positions.setdefault(group.position, []).extend(group.values(metric))
    if len(positions) < 2:
        raise UsageError("a depth curve needs runs of CLOP at two positions or more, with nothing else changed")
    plain = next((group.values(metric) for group in groups if group.method == "plain"), [])
    title = f"{task}, test on {test}, {_count(groups)}\n{groups[0].scale}"
    figures.save(figures.depth_curve(title, positions, plain), path)


def _is_only_moved(group: Group) -> bool:
    return group.label == f"clop(position={group.position})"


def _one_scale(groups: Sequence[Group]) -> Sequence[Group]:
    scales = sorted({group.scale for group in groups})
    if len(scales) != 1:
        raise UsageError(f"a figure shows runs at one scale, got {len(scales)}: {'; '.join(scales)}")
    return groups


def _count(groups: Sequence[Group]) -> str:
    counts = sorted({len(group.runs) for group in groups})
    text = str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    return f"{text} {'run' if text == '1' else 'runs'} each"


def _verdicts(groups: Sequence[Group]) -> list[str]:
    """Who is best at each scale, if CLOP and others were run at it."""
    lines = []
    for scale in dict.fromkeys(group.scale for group in groups):
        same = [group for group in groups if group.scale == scale]
        if len({"clop" in group.method for group in same}) < 2:
            continue
        for name in same[0].tests:
            means = {group.label: group.accuracy(f"{_TEST}{name}").mean for group in same}
            best = max(means, key=means.__getitem__)
            winner = next(group for group in same if group.label == best)
            verdict = "" if "clop" in winner.method else "; CLOP does not win here"
            lines.append(f"Best on {name} ({scale}): {best} with {means[best]:.1f}{verdict}.")
    return lines


def _text(accuracy: Accuracy) -> str:
    return f"{accuracy.mean:.1f}" + ("" if accuracy.std is None else f" ± {accuracy.std:.1f}")
