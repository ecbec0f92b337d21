"""The paper's claims on the page, with what our records say of each."""

from collections.abc import Sequence

from clop.report.claims import VERDICTS, Claim, Verdict
from clop.report.page.html import escape, table
from clop.report.page.links import Links


def section(found: Sequence[tuple[Claim, Verdict]], links: Links) -> str:
    """A table that can be filtered by verdict, topic and words."""
    if not found:
        return ""
    counts = {mark: sum(verdict.mark == mark for _, verdict in found) for mark in VERDICTS}
    marks = "".join(f'<option value="{mark}">{mark} ({count})</option>' for mark, count in counts.items() if count)
    rows = [
        [
            str(claim.number),
            f"{escape(claim.claim)} <small>{escape(claim.place)}</small>",
            f'<span class="verdict">{escape(verdict.mark)}</span> {_why(verdict, links)}',
        ]
        for claim, verdict in found
    ]
    counted = ", ".join(f"{count} {mark}" for mark, count in counts.items() if count)
    kinds = [f'data-verdict="{escape(verdict.mark)}"' for _, verdict in found]
    header = ["", "claim, in our words, and its place in the paper", "verdict, and what decides it"]
    return f"""<section id="claims">
<h2>Claims</h2>
<p>What the paper claims, and what our records say: {counted}. A verdict follows from intervals over seeds, or names the
test that holds our code to a definition. Differences are such that positive supports the claim.</p>
<form class="filters needs-js" id="claims-form" autocomplete="off">
<label>verdict <select name="verdict"><option value="all">all</option>{marks}</select></label>
<label>words <input type="search" name="words" size="18" placeholder="such as locality"></label>
<output id="claims-count" class="faint"></output></form>
{table(header, rows, attributes=kinds)}
</section>"""


def _why(verdict: Verdict, links: Links) -> str:
    words = escape(verdict.statistic).replace("`", "").replace("_", "_<wbr>").replace("::", "::<wbr>")
    text = links.to(verdict.runs, words)
    return text + (f"<small>{escape(verdict.scale)}</small>" if verdict.scale else "")
