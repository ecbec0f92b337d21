"""Links from numbers to their runs: to the run itself, or to a list where a number comes from several."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from clop.report.page.html import anchor, escape, link


@dataclass
class Links:
    """Remembers the lists that numbers lead to, so that the page can have them."""

    lists: dict[str, tuple[Path, ...]] = field(default_factory=dict)

    def to(self, runs: Sequence[Path], text: str) -> str:
        """A number that leads to its runs; without runs, the number."""
        if not runs:
            return text
        if len(runs) == 1:
            return link(run_anchor(runs[0]), text)
        name = anchor("list", *runs)
        self.lists[name] = tuple(runs)
        return link(name, text)

    def html(self) -> str:
        """All lists, folded."""
        return "".join(
            f'<details class="runs" id="{name}"><summary>{len(runs)} runs behind a number</summary><ul>'
            + "".join(f"<li>{link(run_anchor(run), escape(run.as_posix()))}</li>" for run in runs)
            + "</ul></details>"
            for name, runs in self.lists.items()
        )


def run_anchor(path: Path) -> str:
    """Where a run is listed."""
    return anchor("run", path.as_posix())
