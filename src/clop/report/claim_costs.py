"""Rules on what CLOP costs, from records of benchmarks."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from clop.report.claim_evidence import Evidence
from clop.report.claim_kinds import Decide
from clop.report.claims import Verdict

NOISE = 0.05
"""Two ratios of times that are no further apart are the same: records of one thing differ by as much."""


@dataclass(frozen=True)
class _Cost:
    """How many times as long something takes as without, by a record."""

    path: Path
    ratio: float
    scale: str


def _costs(evidence: Evidence, kind: str, **row: str) -> list[_Cost]:
    found = []
    for path, record in evidence.runs.benchmarks.items():
        if record["kind"] == kind:
            machine = record.get("machine", {}).get("processor", "")
            for each in record["metrics"]["rows"]:
                if all(each.get(name) == value for name, value in row.items()):
                    words = (each.get("scale", "the paper's network"), machine)
                    found.append(_Cost(path, each["ratio"], ", ".join(filter(None, words))))
    return found


def _verdict(mark: str, text: str, costs: Sequence[_Cost], whole: bool = True) -> Verdict:
    scales = "; ".join(dict.fromkeys(cost.scale for cost in costs))
    return Verdict(mark, text, scales, tuple(dict.fromkeys(cost.path for cost in costs)), whole)


def _mark(each: Sequence[bool]) -> str:
    return "reproduced" if all(each) else "partly" if any(each) else "contradicted"


def cost_of_training(evidence: Evidence) -> Verdict:
    """CLOP's part of an iteration, timed in turns, is within the noise."""
    return _small("an iteration with CLOP takes", _costs(evidence, "bench methods", method="clop"))


def _small(what: str, costs: Sequence[_Cost]) -> Verdict:
    if not costs:
        return Verdict("not tested", "not measured")
    text = f"{what} {', '.join(f'{cost.ratio:.2f}' for cost in costs)} times as long as without"
    return _verdict(_mark([cost.ratio <= 1 + NOISE for cost in costs]), text, costs)


_SETS = ("mnist", "imagenette")


def negligible(evidence: Evidence) -> Verdict:
    """CLOP costs next to nothing, in agents and in classifiers."""
    each = {"an iteration with CLOP takes": _costs(evidence, "bench methods", method="clop")}
    each |= {f"a pass over {s} takes": _costs(evidence, "bench augment", method="clop", dataset=s) for s in _SETS}
    known = {what: costs for what, costs in each.items() if costs}
    if not known:
        return Verdict("not tested", "not measured")
    parts = [_small(what, costs) for what, costs in known.items()]
    marks = {part.mark for part in parts}
    whole = len(known) == len(each)
    every = [cost for costs in known.values() for cost in costs]
    mark = marks.pop() if len(marks) == 1 and whole else "partly"
    return _verdict(mark, "; ".join(part.statistic for part in parts), every, whole)


def cheaper_than_pixels(evidence: Evidence) -> Verdict:
    """A pass with CLOP is shorter than one with each augmentation of pixels, by more than the noise."""
    parts, gains, costs = [], [], []
    for dataset in _SETS:
        for clop in _costs(evidence, "bench augment", method="clop", dataset=dataset):
            for method in ("crop", "rotation", "cutout", "random_conv"):
                for other in _costs(evidence, "bench augment", method=method, dataset=dataset):
                    if other.path == clop.path:
                        gains.append(other.ratio - clop.ratio)
                        parts.append(f"{dataset}, {method} {other.ratio:.2f} against {clop.ratio:.2f}")
                        costs += [clop, other]
    if not parts:
        return Verdict("not tested", "not measured")
    text = "times as long as a plain pass: " + ", ".join(parts)
    if all(abs(gain) <= NOISE for gain in gains):
        return _verdict("not tested", f"undecided, all within {NOISE:g} of each other: {text}", costs, whole=False)
    return _verdict(_mark([gain > NOISE for gain in gains]), text, costs)


def pass_costs(dataset: str, printed: Mapping[str, float]) -> Decide:
    """Our ratios to a pass without augmentation are the printed ones, but for the noise."""

    def decide_it(evidence: Evidence) -> Verdict:
        parts, near, costs = [], [], []
        for method, paper in printed.items():
            for cost in _costs(evidence, "bench augment", method=method, dataset=dataset):
                near.append(abs(cost.ratio - paper) <= NOISE)
                parts.append(f"{method} {cost.ratio:.2f} against {paper:.2f}")
                costs.append(cost)
        if not parts:
            return Verdict("not tested", "not measured")
        return _verdict(_mark(near), "ratios to none: " + ", ".join(parts), costs)

    return decide_it
