"""Accuracies of classifiers beside the published ones, from run folders."""

import json
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clop.errors import UsageError
from clop.experiments.run_folder import RunFolder
from clop.experiments.summaries import VisionSummary
from clop.report import figures
from clop.report.published import Published, supervised
from clop.report.tables import markdown

_NOT_COMPARED = ("seed", "data", "threads", "test_every", "train_images", "methods")
"""Settings that do not divide runs into groups.

The seed is what runs of a group differ in. The folder of the images and the number of tests change no weight, and the
number of threads changes only how sums are rounded. Images and methods divide runs by what their summary says: there a
default is the same whether spelt out or not, and a part of a data set is not the whole of it.
"""

_PAPER_SETTINGS: tuple[dict[str, dict[str, Any]], ...] = (
    {},
    {"dropout": {"style": "channel"}},
    {"dropout": {"style": "dense"}},
)
"""Changes of settings with which a run stands beside the paper's number: none, and either place of dropout."""

_OF_THE_PAPER = {
    "dropout": "The paper's text describes dropout in the dense part, its appendix has it between the convolutions and "
    "the dense layers of the small CNN, and its code drops channels of the last map there in every network; the "
    "published number, which stands beside both, is most likely of channels.",
    "mixup": "The paper's code mixes the labels of mixup and forgets the images; ours mixes both.",
}
"""What to know of published numbers, by method."""


@dataclass(frozen=True)
class Group:
    """Runs that differ in their seed only."""

    protocol: str
    """All that decides their numbers except methods and seed; accuracies of one protocol can be compared."""
    runs: Sequence[VisionSummary]

    @property
    def method(self) -> str:
        return self.runs[0].method

    @property
    def changed(self) -> Mapping[str, Mapping[str, Any]]:
        return self.runs[0].changed

    @property
    def label(self) -> str:
        return self.runs[0].label

    @property
    def scale(self) -> str:
        return self.runs[0].scale

    @property
    def tests(self) -> list[str]:
        return list(self.runs[0].test_accuracy)

    def test(self, name: str) -> list[float]:
        """The accuracy of each run on a test set."""
        return [run.test_accuracy[name] for run in self.runs]


def read_runs(task: str, paths: Iterable[Path]) -> tuple[list[Group], list[Path]]:
    """The complete runs on a task in these folders and below, in groups of the same settings; and the others."""
    found: dict[tuple[str, str], list[VisionSummary]] = {}
    unfinished = []
    for path in paths:
        folders = [path] if (path / "config.json").exists() else sorted(p.parent for p in path.rglob("config.json"))
        if not folders:
            raise UsageError(f"{path} holds no run: it has no config.json, nor has a folder below it")
        for folder in [RunFolder.open(where, "vision") for where in folders]:
            config, values = folder.config, folder.summary
            if config["task"] != task:
                raise UsageError(f"{folder.path} holds a run on {config['task']}, expected one on {task}")
            if values is None:
                unfinished.append(folder.path)
                continue
            summary = VisionSummary.fromdict(values, folder.path / "summary.json")
            protocol = {name: value for name, value in config.items() if name not in _NOT_COMPARED}
            protocol |= {"source": summary.source, "train_images": summary.train_images}
            key = _text_of(protocol), _text_of([summary.method, summary.changed])
            found.setdefault(key, []).append(summary)
    groups = [Group(protocol, runs) for (protocol, _), runs in found.items()]
    for group in groups:
        seeds = [run.seed for run in group.runs]
        if len(set(seeds)) < len(seeds):
            raise UsageError(
                f"two runs of {group.label} at {group.scale} have the same seed, so they are one run twice"
            )
    return sorted(groups, key=lambda group: (group.scale, group.method != "plain", group.label)), unfinished


def _text_of(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


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
        columns = [group.test(name) for name in tests]
        columns += [[run.train_accuracy for run in group.runs], [run.running_accuracy for run in group.runs]]
        row = [group.label, *(_text(column) for column in columns), str(len(group.runs)), group.scale]
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
    return published.get(group.method) if group.changed in _PAPER_SETTINGS else None


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
            {group.label: group.test(test) for group in groups},
            {label: (paper.test.mean, paper.test.std) for label, paper in papers.items()},
            (f"ours: {groups[0].scale}, {_count(groups)}", f"paper: {paper_scale}"),
        ),
        path,
    )


def depth_figure(task: str, groups: Sequence[Group], path: Path) -> None:
    """Accuracy on the first test set against the stage that CLOP follows, at one scale."""
    groups = _one_scale(groups)
    (test, *_) = groups[0].tests
    by_stage: dict[int, list[float]] = {}
    for group in groups:
        slot = group.runs[0].slot
        if group.method == "clop" and slot is not None and group.changed in ({}, {"clop": {"slot": slot}}):
            by_stage.setdefault(int(slot.removeprefix("stage")), []).extend(group.test(test))
    if len(by_stage) < 2:
        raise UsageError("a depth curve needs runs of CLOP in two slots or more, with nothing else changed")
    plain = next((group.test(test) for group in groups if group.method == "plain"), [])
    title = f"{task}, test on {test}, {_count(groups)}\n{groups[0].scale}"
    figures.save(figures.depth_curve(title, by_stage, plain), path)


def _one_scale(groups: Sequence[Group]) -> Sequence[Group]:
    scales = {group.protocol: group.scale for group in groups}
    if len(scales) != 1:
        raise UsageError(f"a figure shows runs at one scale, got {len(scales)}: {'; '.join(sorted(scales.values()))}")
    return groups


def _count(groups: Sequence[Group]) -> str:
    counts = sorted({len(group.runs) for group in groups})
    text = str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    return f"{text} {'run' if text == '1' else 'runs'} each"


def _verdicts(groups: Sequence[Group]) -> list[str]:
    """Who is best at each scale, if CLOP and others were run at it."""
    lines = []
    for protocol in dict.fromkeys(group.protocol for group in groups):
        same = [group for group in groups if group.protocol == protocol]
        if len({"clop" in group.method for group in same}) < 2:
            continue
        for name in same[0].tests:
            best = max(same, key=lambda group: statistics.mean(group.test(name)))
            verdict = "" if "clop" in best.method else "; CLOP does not win here"
            mean = statistics.mean(best.test(name))
            lines.append(f"Best on {name} ({best.scale}): {best.label} with {mean:.1f}{verdict}.")
    return lines


def _text(values: Sequence[float]) -> str:
    """Mean, and standard deviation over seeds if there are several."""
    spread = f" ± {statistics.stdev(values):.1f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.1f}{spread}"
