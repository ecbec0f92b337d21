"""Does CLOP help? Every comparison of CLOP with none, and the questions of this repository's plan."""

from collections.abc import Sequence

from clop.report.evidence import EVIDENCE_TABLES
from clop.report.page.gains import Gain
from clop.report.page.html import escape, number, table
from clop.report.page.links import Links
from clop.report.page.tables import details, has_numbers
from clop.report.runs import Runs
from clop.report.stats import Estimate, student_estimate

_WIDTH, _HEIGHT, _MIDDLE = 220, 26, 110
_TITLES = {
    "evidence-agents": "Agents of the plan",
    "evidence-decisions": "What decides: agents",
    "evidence-learning": "How agents were learning at the end",
    "evidence-not-made": "Planned and not run",
    "evidence-classifiers": "Classifiers of the plan",
    "evidence-classifier-decisions": "What decides: classifiers",
}


def section(gains: Sequence[Gain], runs: Runs, links: Links) -> str:
    """A row for each comparison, with a picture of its interval; below, the tables of the plan."""
    if not gains:
        return ""
    # An interval that is wider than all effects would make dots of them.
    shown = [abs(gain.percent.value) for gain in gains if gain.percent is not None]
    most = max(1.0, 1.6 * max(shown, default=1.0))
    rows = [_row(gain, most, links) for gain in gains]
    header = [
        "where",
        "without",
        "with CLOP",
        "difference",
        f"−{most:.0f} to +{most:.0f}&nbsp;%",
        "seeds",
        "CLOP is",
    ]
    attributes = [f'data-outcome="{gain.verdict}"' for gain in gains]
    return f"""<section id="evidence">
<h2>Does CLOP help?</h2>
<p>CLOP against the same network without it, wherever both were run: {_counts(gains)}. In brackets intervals of
95&nbsp;% over seeds (Student’s and Welch’s), from three seeds on. The dot is the difference in per cent of the number
without CLOP, the line its interval; a hollow dot has none.</p>
{table(header, rows, attributes=attributes)}
{_plan(runs, links)}
</section>"""


def _counts(gains: Sequence[Gain]) -> str:
    names = {
        "better": "CLOP is better",
        "worse": "it is worse",
        "undecided": "the interval holds zero",
        "too few seeds": "there are too few seeds to say",
    }
    counts = {name: sum(gain.verdict == name for gain in gains) for name in names}
    return ", ".join(f"{text} in {counts[name]}" for name, text in names.items() if counts[name])


def _row(gain: Gain, most: float, links: Links) -> list[str]:
    base, clop = (student_estimate(values) for values in (gain.base, gain.clop))
    counts = {len(gain.base), len(gain.clop)}
    seeds = str(counts.pop()) if len(counts) == 1 else f"{len(gain.base)} and {len(gain.clop)}"
    sign = "+" if gain.difference.value > 0 else ""
    measured = escape(gain.measured) + (" in&nbsp;%" if gain.unit else "")
    return [
        f"{escape(gain.what)}<br><small>{measured}<br>{escape(gain.scale)}</small>",
        f"{links.to(gain.base_runs, number(base, gain.digits))}<br><small>{escape(gain.base_name)}</small>",
        links.to(gain.clop_runs, number(clop, gain.digits)),
        links.to((*gain.base_runs, *gain.clop_runs), sign + number(gain.difference, gain.digits)),
        "–" if gain.percent is None else _picture(gain.percent, most),
        f'<span class="whole">{seeds}</span>',
        f'<span class="outcome">{gain.verdict}</span>',
    ]


def _picture(percent: Estimate, most: float) -> str:
    """The difference as a dot and its interval as a line, beside zero."""

    def x(value: float) -> float:
        return _MIDDLE + max(-1.0, min(1.0, value / most)) * (_MIDDLE - 8)

    y = _HEIGHT / 2
    ends = ""
    if percent.low is not None and percent.high is not None:
        ends = f'<path class="reach" d="M{x(percent.low):.1f} {y}H{x(percent.high):.1f}"/>'
    kind = "dot" if ends else "dot hollow"
    return (
        f'<svg class="gain" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{percent.value:+.0f} %">'
        f'<path class="zero" d="M{_MIDDLE} 0V{_HEIGHT}"/>{ends}'
        f'<circle class="{kind}" cx="{x(percent.value):.1f}" cy="{y}" r="5"/></svg>'
    )


def _plan(runs: Runs, links: Links) -> str:
    """What was registered before the first run, and what came of it; nothing where no planned run is."""
    found = {name: make(runs) for name, make in EVIDENCE_TABLES.items()}
    filled = {name: each for name, each in found.items() if has_numbers(each)}
    if "evidence-decisions" not in filled:
        return ""
    shown = "".join(details(name, each, links, _TITLES[name]) for name, each in filled.items())
    return f"""<h3>The registered plan</h3>
<p>Questions, comparisons and what decides them were written down before the first of these runs
(<code>results/evidence/PLAN.md</code>). Intervals here are the plan’s bootstrap, which is too narrow with so few seeds.
Rows that were not run yet say so.</p>
{shown}"""
