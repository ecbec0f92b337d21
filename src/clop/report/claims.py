"""The paper's claims, and what our records say of each.

``claims.csv`` lists them. A rule turns records into comparisons, each oriented so that a positive difference supports
the claim, and :func:`decide` turns comparisons into a verdict. Definitions and settings are held to by tests of this
repository, which ``TESTS`` in :mod:`~clop.report.claim_words` names; ``BEYOND`` beside it says of the others why no run
could decide them.
"""

import csv
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from clop.report.stats import Estimate

if TYPE_CHECKING:
    from clop.report.claim_evidence import Evidence

_FILE = Path(__file__).with_name("claims.csv")
VERDICTS = ("reproduced", "partly", "contradicted", "not tested")
_SHOWN = 6  # comparisons in a cell of the page


@dataclass(frozen=True)
class Claim:
    """A statement of the paper, in our words."""

    number: int
    topic: str
    place: str
    claim: str
    paper: str
    """What the paper's own printed numbers say of it."""


@dataclass(frozen=True)
class Comparison:
    """A difference that bears on a claim; positive supports it."""

    subject: str
    """The part of the claim that it is about, such as a game."""
    text: str
    """What is compared."""
    difference: Estimate
    scale: str
    runs: tuple[Path, ...]


@dataclass(frozen=True)
class Verdict:
    """What our records say of a claim."""

    mark: str
    statistic: str
    scale: str = ""
    runs: tuple[Path, ...] = ()
    whole: bool = False
    """Whether nothing that the claim speaks of is missing."""


@dataclass(frozen=True)
class Rule:
    """How records decide a claim, and what to run where they do not."""

    decide: "Callable[[Evidence], Verdict]"
    command: str


def read_claims() -> list[Claim]:
    with _FILE.open(newline="", encoding="utf-8") as file:
        return [Claim(int(row.pop("number")), **row) for row in csv.DictReader(file)]


def decide(found: Sequence[Comparison], subjects: Iterable[str], *, every: bool = False) -> Verdict:
    """The verdict on a claim from comparisons.

    *Reproduced*: every difference is above zero with its interval, and every subject of the claim was compared.
    *Contradicted*: none is above zero, and one or more are below it with their interval; or one is, where the claim is
    about ``every`` subject. *Partly*: some are above zero with their interval. Else the records do not decide, and the
    claim is *not tested*.

    Args:
        found: Comparisons; those with fewer than three seeds decide nothing.
        subjects: What the claim is about.
        every: Whether one subject is enough to contradict it.
    """
    if not found:
        return Verdict("not tested", "not run")
    decided = [one for one in found if one.difference.low is not None]
    text, scale, runs = _text(decided or found), _scales(decided or found), _paths(decided or found)
    if not decided:
        return Verdict("not tested", f"fewer than three seeds: {text}", scale, runs)
    above = [one for one in decided if (one.difference.low or 0.0) > 0]
    below = [one for one in decided if (one.difference.high or 0.0) < 0]
    if len(above) == len(decided) and set(subjects) <= {one.subject for one in decided}:
        mark = "reproduced"
    elif below and (every or not above):
        mark = "contradicted"
    elif above:
        mark = "partly"
    else:
        return Verdict("not tested", f"undecided: {text}", scale, runs)
    missing = [subject for subject in subjects if subject not in {one.subject for one in decided}]
    if missing:
        text += f"; not run: {', '.join(missing)}" if len(missing) <= _SHOWN else f"; {len(missing)} others not run"
    return Verdict(mark, text, scale, runs, whole=not missing)


def _text(found: Sequence[Comparison]) -> str:
    parts = []
    for one in found[:_SHOWN]:
        d = one.difference
        interval = "" if d.low is None or d.high is None else f" [{d.low:+.2f}, {d.high:+.2f}]"
        parts.append(f"{one.text}: {d.value:+.2f}{interval}, n {d.n}")
    more = len(found) - _SHOWN
    return "; ".join(parts) + (f"; and {more} more" if more > 0 else "")


def _scales(found: Sequence[Comparison]) -> str:
    return "; ".join(dict.fromkeys(one.scale for one in found))


def _paths(found: Sequence[Comparison]) -> tuple[Path, ...]:
    return tuple(dict.fromkeys(path for one in found for path in one.runs))


def verdicts(
    evidence: "Evidence", rules: Mapping[int, Rule], tests: Mapping[int, str], beyond: Mapping[int, str]
) -> list[tuple[Claim, Verdict]]:
    """Every claim with its verdict.

    Args:
        evidence: The runs.
        rules: Of claims that records decide.
        tests: Of claims that are definitions or settings, the test that holds our code to them.
        beyond: Of claims that no run could decide, why.
    """
    found = []
    for claim in read_claims():
        if claim.number in rules:
            verdict = rules[claim.number].decide(evidence)
            if not verdict.whole:
                text = f"{verdict.statistic}; to run: `{rules[claim.number].command}`"
                verdict = replace(verdict, statistic=text)
        elif claim.number in tests:
            verdict = Verdict("reproduced", f"by construction, `{tests[claim.number]}`")
        else:
            verdict = Verdict("not tested", beyond[claim.number])
        found.append((claim, verdict))
    return found


def page(found: Sequence[tuple[Claim, Verdict]], out: Path, command: str) -> str:
    """``claims.md``, whose links start from the folder ``out``."""
    counts = {mark: sum(verdict.mark == mark for _, verdict in found) for mark in VERDICTS}
    lines = [
        "# The paper's claims, and what our records say",
        "",
        f"Generated by `{command}`; a test compares this page with the records. The claims are those of Bertoin and "
        "Rachelson, in our words; *paper* says what its own printed numbers make of each (`printed`: restates a table; "
        "`figure`: rests on a figure without numbers; `stated`: a definition, a setting or an argument).",
        "",
        "A claim is *reproduced* if every difference that we measured is above zero with its whole 95 % interval over "
        "seeds and nothing that it speaks of is missing; *contradicted* if none is and one is below zero in the same "
        "way, or any, where it speaks of every case; *partly* in between; and *not tested* where there are no runs, "
        "fewer than three seeds, or intervals that decide nothing; then it says what to run, or why no run could "
        "decide it. Definitions count as reproduced where a test holds our code to them. Differences are oriented so "
        "that positive supports the claim. Of runs that grew, those steps count that most seeds have. Printed "
        "accuracies are reproduced by ours, of one run or more at the paper's scale, within two of their ± or half a "
        "point. Ratios of times that are within 0.05 of each other are the same. A verdict is one at the scale of its "
        "row: our runs are far smaller than the paper's unless the scale says otherwise.",
        "",
        ", ".join(f"{count} {mark}" for mark, count in counts.items()) + ".",
    ]
    for topic in dict.fromkeys(claim.topic for claim, _ in found):
        rows = [
            [
                str(claim.number),
                claim.claim,
                claim.place,
                claim.paper,
                f"**{verdict.mark}**" if verdict.scale else verdict.mark,
                verdict.statistic,
                verdict.scale,
                _links(verdict.runs, out),
            ]
            for claim, verdict in found
            if claim.topic == topic
        ]
        header = ["#", "claim", "place", "paper", "verdict", "decided by", "scale", "runs"]
        lines += ["", f"## {topic}", "", _compact(header, rows)]
    return "\n".join(lines) + "\n"


def _compact(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table without padding, since its cells are long."""
    escaped = [[cell.replace("|", "\\|") for cell in row] for row in rows]
    return "\n".join(f"| {' | '.join(row)} |" for row in [header, ["---"] * len(header), *escaped])


def _links(paths: Sequence[Path], out: Path) -> str:
    """A link for each folder that holds some of the runs."""
    counts: dict[Path, int] = {}
    for path in paths:
        counts[path.parent] = counts.get(path.parent, 0) + 1
    links = []
    for folder, count in counts.items():
        where = Path(os.path.relpath(folder, out)).as_posix()
        links.append(f"[{count} in {'/'.join(folder.parts[-2:])}]({where})")
    return ", ".join(links)
