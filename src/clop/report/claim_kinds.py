"""Kinds of rules: how comparisons and printed numbers become verdicts."""

from collections.abc import Callable, Mapping, Sequence
from statistics import mean

import numpy as np

from clop.report.claim_evidence import ALL, Evidence, Find, cell_scale, paths_of, shifted
from clop.report.claims import Comparison, Verdict, decide
from clop.report.efficiency import curve_of, highest, steps_to
from clop.report.outcomes import Cell
from clop.report.paper_vision import PAPER_SETTINGS, Group, is_full
from clop.report.published import supervised
from clop.report.stats import Array, contrast_estimate, estimate_rows, generator, student_estimate, welch_estimate
from clop.rl.games import normalised_return

_NOT_RUN = Verdict("not tested", "not run")

Decide = Callable[[Evidence], Verdict]


def by_intervals(find: Find, subjects: Sequence[str] = (), *, every: bool = False) -> Decide:
    return lambda evidence: decide(find(evidence), subjects, every=every)


def both(first: Find, second: Find) -> Decide:
    """Two kinds of comparisons, neither of which decides without the other."""

    def decide_it(evidence: Evidence) -> Verdict:
        a, b = first(evidence), second(evidence)
        return decide([*a, *b], ()) if a and b else _NOT_RUN

    return decide_it


def majority(find: Find, need: int) -> Decide:
    """So many of the sixteen games are won with their intervals."""

    def decide_it(evidence: Evidence) -> Verdict:
        found = find(evidence)
        plain = decide(found, ALL)
        if plain.mark == "not tested":
            return plain
        won = {one.subject for one in found if one.difference.low is not None and one.difference.low > 0}
        lost = {one.subject for one in found if one.difference.high is not None and one.difference.high < 0} - won
        if len(won) >= need:
            mark = "reproduced"
        elif len(ALL) - len(lost) < need:
            mark = "contradicted"
        else:
            mark = "partly" if won else "not tested"
        text = f"{len(won)} won and {len(lost)} lost of {len({one.subject for one in found})} games: {plain.statistic}"
        return Verdict(mark, text, plain.scale, plain.runs, plain.whole)

    return decide_it


def around(find: Find, printed: float) -> Decide:
    """A difference has the sign of the claim, and its interval holds the printed number."""

    def decide_it(evidence: Evidence) -> Verdict:
        found = find(evidence)
        plain = decide(found, ())
        if plain.mark in ("reproduced", "partly"):
            holds = [one.difference for one in found if one.difference.low is not None]
            hit = all(not difference.excludes(printed) for difference in holds)
            mark = "reproduced" if hit and plain.mark == "reproduced" else "partly"
            return Verdict(mark, f"{plain.statistic}; printed: {printed:+g}", plain.scale, plain.runs, plain.whole)
        return plain

    return decide_it


# ---- agents -------------------------------------------------------------------------------------------------------


def normalised_lead(better: str, worse: str, games: Sequence[str], at_most: float | None = None) -> Find:
    """A method is ahead in normalised points, and by no more than so many."""

    def find(evidence: Evidence) -> list[Comparison]:
        found = []
        for a, b in evidence.agents((better, worse), games):
            samples = [100 * np.asarray(normalised_return(cell.values("test"), cell.game)) for cell in (a, b)]
            lead, text = welch_estimate(samples[0], samples[1]), f"{a.game}, points: {better} − {worse}"
            found.append(Comparison(a.game, text, lead, cell_scale(a), paths_of((a, b))))
            if at_most is not None:
                room = shifted(welch_estimate(samples[1], samples[0]), at_most)
                found.append(Comparison(a.game, f"{at_most:g} − ({text})", room, cell_scale(a), paths_of((a, b))))
        return found

    return find


def far_from_the_top(games: Sequence[str], share: float = 0.75, steps: int = 25_000_000) -> Find:
    """After the paper's steps every method stays below a share of the range of a game."""

    def find(evidence: Evidence) -> list[Comparison]:
        found = []
        for (cell,) in evidence.agents(("*",), games):
            if cell.env_steps >= steps:
                scores = normalised_return(cell.values("test"), cell.game)
                room = shifted(contrast_estimate([scores], [-1]), share)
                text = f"{cell.game}: {share:g} − {cell.variant}"
                found.append(Comparison(cell.game, text, room, cell_scale(cell), paths_of((cell,))))
        return found

    return find


def faster(better: str, worse: str, split: str, games: Sequence[str], mode: str = "easy") -> Find:
    """A method takes fewer steps to the highest return that all runs of both reach."""

    def find(evidence: Evidence) -> list[Comparison]:
        found = []
        for pair in evidence.agents((better, worse), games, mode):
            curves = [[curve_of(run, split) for run in cell.runs] for cell in pair]
            every = [curve for several in curves for curve in several]
            if min(map(len, every)) < 2:
                continue
            level = min(map(highest, every))
            steps = [[(steps_to(curve, level) or 0.0) / 1000 for curve in several] for several in curves]
            text = f"{pair[0].game}, {split}: thousand steps to {level:.1f}, {worse} − {better}"
            value = welch_estimate(steps[1], steps[0])
            found.append(Comparison(pair[0].game, text, value, cell_scale(pair[0]), paths_of(pair)))
        return found

    return find


def gap_reduction(statistic: Callable[[Array], Array], text: str) -> Find:
    """A number made of the reductions of the gap by CLOP, in percent, (…, games) in alphabetical order."""

    def find(evidence: Evidence) -> list[Comparison]:
        by_scale: dict[tuple[str, int], list[tuple[Cell, ...]]] = {}
        for pair in evidence.agents(("clop", "ppo"), ALL):
            by_scale.setdefault((pair[0].scale_key, pair[0].env_steps), []).append(pair)
        found = []
        for pairs in by_scale.values():
            if len(pairs) == len(ALL):
                pairs.sort(key=lambda pair: pair[0].game)
                samples = [np.array(cell.values("gap"))[:, None] for pair in pairs for cell in pair]
                value = estimate_rows(lambda drawn: statistic(_reductions(drawn)), samples, generator(0, text), 10_000)
                every = [cell for pair in pairs for cell in pair]
                found.append(Comparison("gap", text, value, cell_scale(every[0]), paths_of(every)))
        return found

    return find


def _reductions(samples: Sequence[Array]) -> Array:
    means = [sample[..., 0].mean(-1) for sample in samples]
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.stack([100 * (b - a) / b for a, b in zip(means[::2], means[1::2], strict=True)], -1)


def training_times(game: str, printed: float) -> Decide:
    """At the paper's steps, training with CLOP takes as many times as long as printed, to 0.05."""

    def decide_it(evidence: Evidence) -> Verdict:
        pairs = [
            pair
            for mode, steps in (("easy", 25_000_000), ("hard", 200_000_000))
            for pair in evidence.agents(("clop", "ppo"), (game,), mode)
            if pair[0].env_steps >= steps
        ]
        if not pairs:
            return _NOT_RUN
        ratios = [mean(s.seconds for s in a.stages) / mean(s.seconds for s in b.stages) for a, b in pairs]
        near = [abs(ratio - printed) <= 0.05 for ratio in ratios]
        mark = "reproduced" if all(near) else "partly" if any(near) else "contradicted"
        text = f"times as long as ppo: {', '.join(f'{ratio:.3f}' for ratio in ratios)}; printed: {printed:.3f}"
        paths = tuple(path for pair in pairs for path in paths_of(pair))
        return Verdict(mark, text, cell_scale(pairs[0][0]), paths, whole=len(pairs) == 2)

    return decide_it


# ---- classifiers --------------------------------------------------------------------------------------------------


def _at_the_papers_scale(evidence: Evidence, task: str, method: str) -> list[Group]:
    paper = supervised(task)[method].scale
    return [
        group
        for group in evidence.groups(task)
        if group.first.summary.method == method and group.first.summary.changed in PAPER_SETTINGS
        if is_full(group, paper)
    ]


def printed_accuracies(task: str, methods: Sequence[str], quantity: str = "test") -> Decide:
    """Our accuracy at the paper's scale lies within two of its ± of the printed one, or within half a point."""

    def decide_it(evidence: Evidence) -> Verdict:
        parts, near, paths, scale, seen = [], [], [], "", set()
        for method in methods:
            published = supervised(task)[method]
            paper = published.test if quantity == "test" else published.train
            for group in _at_the_papers_scale(evidence, task, method) if paper else []:
                assert paper is not None
                ours = student_estimate(group.values(quantity))
                near.append(abs(ours.value - paper.mean) <= max(2 * (paper.std or 0.0), 0.5))
                outside = "" if near[-1] else ", outside"
                parts.append(f"{group.label} {ours.value:.1f} (n {ours.n}) against {paper}{outside}")
                paths += [run.path for run in group.runs]
                scale = group.scale
                seen.add(method)
        if not parts:
            return Verdict("not tested", "not run at the paper's scale")
        missing = len(set(methods) - seen)
        text = (
            "within two ± unless said: "
            + "; ".join(parts)
            + (f"; {missing} of {len(methods)} not run" if missing else "")
        )
        mark = "contradicted" if not any(near) else "reproduced" if all(near) and not missing else "partly"
        return Verdict(mark, text, scale, tuple(paths), whole=not missing)

    return decide_it


def fits(tasks: Mapping[str, Sequence[str]], least: float) -> Find:
    """At the paper's scale the training accuracy of these methods is at least so high."""

    def find(evidence: Evidence) -> list[Comparison]:
        found = []
        for task, methods in tasks.items():
            for group in (g for method in methods for g in _at_the_papers_scale(evidence, task, method)):
                above = shifted(student_estimate(group.values("running")), -least)
                text = f"{task}, training accuracy: {group.label} − {least:g}"
                found.append(Comparison(task, text, above, group.scale, paths_of((group,))))
        return found

    return find


def scarce(task: str) -> Decide:
    """The gain of CLOP over the plain network is larger with the fewest images than with the most."""

    def decide_it(evidence: Evidence) -> Verdict:
        usable = {
            clop.first.summary.train_images: (clop, plain)
            for clop, plain in evidence.classifiers(("clop", "plain"), task)
            if min(len(clop.runs), len(plain.runs)) >= 3
        }
        if len(usable) < 2:
            return Verdict("not tested", "not run with few and with many images, three seeds each")
        four = (*usable[min(usable)], *usable[max(usable)])
        difference = contrast_estimate([group.values("test") for group in four], [1, -1, -1, 1])
        text = f"gain with {min(usable)} images − gain with {max(usable)}"
        scales = f"{four[0].scale}; {four[2].scale}"
        return decide([Comparison(task, text, difference, scales, paths_of(four))], [task])

    return decide_it


def lead_of_starpilot(reductions: Array) -> Array:
    """How much more the gap shrinks on starpilot than on any other game."""
    place = ALL.index("starpilot")
    others = np.delete(reductions, place, axis=-1)
    return reductions[..., place] - others.max(-1)


def mean_reduction(reductions: Array) -> Array:
    return reductions.mean(-1)
