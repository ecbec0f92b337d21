"""Links from numbers to their runs: to one run, to the runs of a method, or to a list of both."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from clop.report.page.html import anchor, escape, link


@dataclass(frozen=True)
class Group:
    """Runs that the page lists together."""

    place: str
    title: str
    runs: frozenset[Path]


@dataclass
class Links:
    """Remembers the lists that numbers lead to, so that the page can have them."""

    groups: Sequence[Group] = ()
    lists: dict[str, tuple[Path, ...]] = field(default_factory=dict)

    def to(self, runs: Sequence[Path], text: str) -> str:
        """A number that leads to its runs; without runs, the number."""
        if not runs:
            return text
        if len(runs) == 1:
            return link(run_anchor(runs[0]), text)
        if (group := self._by_runs.get(frozenset(runs))) is not None:
            return link(group.place, text)
        name = anchor("list", *runs)
        self.lists[name] = tuple(runs)
        return link(name, text)

    def named(self, name: str) -> Path | None:
        """The run on the page whose folder has this name, if there is one and no other."""
        found = {run for group in self.groups for run in group.runs if run.name == name}
        return found.pop() if len(found) == 1 else None

    @property
    def _by_runs(self) -> Mapping[frozenset[Path], Group]:
        return {group.runs: group for group in self.groups}

    def html(self) -> str:
        """All lists, folded, within one that is."""
        lists = "".join(
            f'<details class="runs" id="{name}"><summary>{len(runs)} runs behind a number</summary>'
            f"<ul>{self._items(runs)}</ul></details>"
            for name, runs in self.lists.items()
        )
        return (
            f"<details><summary>Runs behind numbers that come from several</summary>{lists}</details>" if lists else ""
        )

    def _items(self, runs: Sequence[Path]) -> str:
        """Whole groups by their title, what is left run by run."""
        left, items = dict.fromkeys(runs), []
        for group in self.groups:
            if group.runs <= left.keys():
                items.append(link(group.place, escape(group.title)))
                left = {run: None for run in left if run not in group.runs}
        items += [link(run_anchor(run), escape(run.as_posix())) for run in left]
        return "".join(f"<li>{item}</li>" for item in items)


def run_anchor(path: Path) -> str:
    """Where a run is listed."""
    return anchor("run", path.as_posix())
