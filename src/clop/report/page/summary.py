"""The first screen: what CLOP does, in a picture, and what the records say, in three numbers."""

from collections.abc import Sequence

from clop.game_frame import draw_frame
from clop.report.claims import VERDICTS, Claim, Verdict
from clop.report.page.gains import Gain
from clop.report.page.html import escape
from clop.report.page.layer import swapped
from clop.report.page.png import png_uri

_ALPHA = 0.6
_OUTCOMES = {
    "better": "CLOP is better: the interval lies above zero",
    "worse": "CLOP is worse: the interval lies below zero",
    "undecided": "undecided: the interval holds zero",
    "too few seeds": "too few seeds to decide",
}


def header(count: int, gains: Sequence[Gain], found: Sequence[tuple[Claim, Verdict]]) -> str:
    """Title, picture and findings."""
    runs = "one run" if count == 1 else f"{count} runs"
    below = f"Below: the layer to try, and what came of it in {runs}." if count else "Below: the layer to try."
    frame = draw_frame()
    pictures = "".join(
        f'<figure><img src="{png_uri(image)}" width="180" height="180" alt=""><figcaption>{text}</figcaption></figure>'
        for image, text in (
            (frame, "in evaluation: left as it is"),
            (swapped(frame, _ALPHA), f"in training: neighbours swap, alpha {_ALPHA:g}"),
        )
    )
    return f"""<header>
<div class="intro"><div>
<h1>Swapping neighbours to generalise</h1>
<p class="lead">CLOP is a layer that swaps neighbouring positions of a feature map at random while a network trains, the
same way in every channel. The network cannot rely on where exactly things are, and is to do better on images and game
levels that it has not seen. {below}</p>
</div><div class="pair" role="img" aria-label="a game frame, and the same frame with neighbours swapped">{pictures}
</div></div>
{_cards(gains, found)}
</header>"""


def _cards(gains: Sequence[Gain], found: Sequence[tuple[Claim, Verdict]]) -> str:
    """The comparisons that have most seeds, one of classifiers and one of agents, and the claims."""
    points = next((gain for gain in gains if gain.unit), None)
    returns = next((gain for gain in gains if not gain.unit), None)
    cards = [_gain(gain) for gain in (points, returns) if gain is not None]
    if found:
        cards.append(_claims(found))
    return f'<div class="cards">{"".join(cards)}</div>' if cards else ""


def _gain(gain: Gain) -> str:
    d, percent = gain.difference, gain.percent
    if gain.unit or percent is None:
        big = f"{_signed(d.value, gain.digits)} {gain.unit}"
    else:
        big = f"{_signed(percent.value, 0)} %"
    means = [f"{sum(values) / len(values):.{gain.digits}f}" for values in (gain.clop, gain.base)]
    between = ""
    if d.low is not None and d.high is not None:
        between = f"; interval of 95&nbsp;% [{_signed(d.low, gain.digits)}, {_signed(d.high, gain.digits)}]"
    seeds = "one seed" if gain.seeds == 1 else f"{gain.seeds} seeds"
    return (
        f'<a class="card" href="#evidence" data-outcome="{gain.verdict}"><span class="what">'
        f"<b>{'Images' if gain.unit else 'Games'}</b>: {escape(gain.what)}, {escape(gain.measured)}</span><strong>"
        f'{big}</strong><span class="outcome">{_OUTCOMES[gain.verdict]}</span>'
        f"<small>{means[0]} with CLOP, {means[1]} with {_base(gain)}{between}; {seeds}; {escape(gain.scale)}</small>"
        "</a>"
    )


def _base(gain: Gain) -> str:
    return "the plain network" if gain.base_name == "plain" else escape(gain.base_name)


def _claims(found: Sequence[tuple[Claim, Verdict]]) -> str:
    counts = {mark: sum(verdict.mark == mark for _, verdict in found) for mark in VERDICTS}
    rest = ", ".join(f"{count} {mark}" for mark, count in counts.items() if count and mark != "reproduced")
    defined = sum(
        verdict.mark == "reproduced" and verdict.statistic.startswith("by construction") for _, verdict in found
    )
    measured = counts["reproduced"] - defined
    return (
        f'<a class="card" href="#claims"><span class="what"><b>Claims</b> of the paper: reproduced</span>'
        f"<strong>{counts['reproduced']} of {len(found)}</strong><span>{rest}</span><small>{measured} by what was "
        f"measured; {defined} are definitions that tests hold the code to.</small></a>"
    )


def _signed(value: float, digits: int) -> str:
    return f"{value:+.{digits}f}".replace("-", "−")
