"""Kinds of rules: what runs and benchmarks say of a claim, as comparisons of which positive ones support it."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from clop.report.claims import Comparison, Rule, Verdict, decide
from clop.report.outcomes import Cell, cells
from clop.report.paper_agents import METHODS, steps_text
from clop.report.paper_vision import PAPER_SETTINGS, Group, groups
from clop.report.published import supervised
from clop.report.runs import Runs
from clop.report.stats import Estimate, contrast_estimate, student_estimate, welch_estimate

_NEGLIGIBLE = 1.05
"""Up to this ratio a cost is called negligible."""

Find = Callable[[Runs], list[Comparison]]


# ---- comparisons of agents ----------------------------------------------------------------------------------------


def agents(better: str, worse: str, quantity: str, games: Sequence[str], mode: str = "easy", sign: int = 1) -> Find:
    """One method against another on games, at the last steps of each scale; ``sign`` −1 if less is better.

    A name that ends with ``*`` stands for all variants that begin like it.
    """

    def find(runs: Runs) -> list[Comparison]:
        last: dict[tuple[str, str], dict[int, dict[str, Cell]]] = {}
        for cell in cells([run for run in runs.agents if run.mode == mode and run.game in games]):
            by_steps = last.setdefault((cell.game, cell.scale_key), {})
            by_steps.setdefault(cell.env_steps, {})[cell.variant] = cell
        found = []
        for (game, _), by_steps in last.items():
            pairs = {
                steps: [(a, b) for a in named if _is(a, better) for b in named if _is(b, worse) and a != b]
                for steps, named in by_steps.items()
            }
            most = max((steps for steps, each in pairs.items() if each), default=0)
            for a, b in pairs.get(most, []):
                one, other = by_steps[most][a], by_steps[most][b]
                difference = _signed(welch_estimate(one.values(quantity), other.values(quantity)), sign)
                scale = f"{one.scale}, {steps_text(most)} steps"
                names = f"{a} − {b}" if sign > 0 else f"{b} − {a}"
                paths = tuple(run.path for run in (*one.runs, *other.runs))
                found.append(Comparison(game, f"{game}, {quantity}: {names}", difference, scale, paths))
        return found

    return find


def _is(variant: str, name: str) -> bool:
    return variant.startswith(name[:-1]) if name.endswith("*") else variant == name


def _signed(found: Estimate, sign: int) -> Estimate:
    if sign > 0 or found.low is None or found.high is None:
        return found if sign > 0 else Estimate(-found.value, None, None, found.n)
    return Estimate(-found.value, -found.high, -found.low, found.n)


# ---- comparisons of classifiers -----------------------------------------------------------------------------------


def vision(better: str, worse: str, tasks: Sequence[str], quantity: str = "test") -> Find:
    """One method against another on tasks, at every scale that has both; names as in :func:`agents`."""

    def find(runs: Runs) -> list[Comparison]:
        found = []
        for task in tasks:
            every = groups(runs.classifiers, task)
            for a in every:
                for b in every:
                    if a.protocol == b.protocol and a is not b and _is(a.label, better) and _is(b.label, worse):
                        difference = welch_estimate(a.values(quantity), b.values(quantity))
                        text = f"{task}: {a.label} − {b.label}"
                        if quantity == "gap":  # less is better
                            difference, text = _signed(difference, -1), f"{task}, gap: {b.label} − {a.label}"
                        found.append(Comparison(task, text, difference, a.scale, _runs(a, b)))
        return found

    return find


def _runs(*several: Group) -> tuple[Path, ...]:
    return tuple(run.path for group in several for run in group.runs)


def all_of(*finds: Find) -> Find:
    return lambda runs: [one for find in finds for one in find(runs)]


def rule(find: Find, subjects: Sequence[str], *, every: bool = False) -> Rule:
    return lambda runs: decide(find(runs), subjects, every=every)


# ---- rules of other kinds -----------------------------------------------------------------------------------------


def printed_accuracies(task: str, methods: Sequence[str]) -> Rule:
    """Our accuracy at the paper's scale lies within two of its ± of the printed one."""

    def decide_it(runs: Runs) -> Verdict:
        published = supervised(task)
        parts, near, paths, scale, seen = [], [], [], "", set()
        for method in methods:
            network, images, _, epochs, *_ = published[method].scale.split(", ")
            for group in groups(runs.classifiers, task):
                summary = group.first.summary
                whole = (summary.network, f"{summary.train_images} images") == (network, images)
                is_it = summary.method == method and summary.changed in PAPER_SETTINGS
                if is_it and whole and f"{group.first.config['epochs']} epochs" == epochs:
                    ours, paper = student_estimate(group.values("test")), published[method].test
                    near.append(abs(ours.value - paper.mean) <= 2 * (paper.std or 0.0))
                    parts.append(f"{group.label} {ours.value:.1f} (n {ours.n}) against {paper}")
                    paths += [run.path for run in group.runs]
                    scale = group.scale
                    seen.add(method)
        if not parts:
            return Verdict("not tested", "not run at the paper's scale")
        missing = len(set(methods) - set(seen))
        text = "within two ±: " + ", ".join(parts) + (f"; {missing} of {len(methods)} not run" if missing else "")
        mark = "contradicted" if not any(near) else "reproduced" if all(near) and not missing else "partly"
        return Verdict(mark, text, scale, tuple(paths))

    return decide_it


def scarce(task: str) -> Rule:
    """The gain of CLOP over the plain network is larger with the fewest images than with the most."""

    def decide_it(runs: Runs) -> Verdict:
        by_images: dict[int, dict[str, Group]] = {}
        for group in groups(runs.classifiers, task):
            if group.label in ("plain", "clop"):
                by_images.setdefault(group.first.summary.train_images, {})[group.label] = group
        both = {images: named for images, named in by_images.items() if len(named) == 2}
        usable = {k: v for k, v in both.items() if min(len(g.runs) for g in v.values()) >= 3}
        if len(usable) < 2:
            return Verdict("not tested", "not run with few and with many images, three seeds each")
        few, many = usable[min(usable)], usable[max(usable)]
        four = [few["clop"], few["plain"], many["clop"], many["plain"]]
        difference = contrast_estimate([group.values("test") for group in four], [1, -1, -1, 1])
        text = f"gain with {min(usable)} images − gain with {max(usable)}"
        scales = f"{four[0].scale}; {four[2].scale}"
        return decide([Comparison(task, text, difference, scales, _runs(*four))], [task])

    return decide_it


def cost_of_training(runs: Runs) -> Verdict:
    """CLOP's part of an iteration, timed in turns."""
    ratios = {
        path: row["ratio"]
        for path, record in runs.benchmarks.items()
        if record["kind"] == "bench methods"
        for row in record["metrics"]["rows"]
        if row["method"] == "clop"
    }
    return _costs("an iteration with CLOP takes", ratios, "the paper's network; clop bench methods")


def cost_of_a_pass(method: str, dataset: str) -> Callable[[Runs], dict[Path, float]]:
    return lambda runs: {
        path: row["ratio"]
        for path, record in runs.benchmarks.items()
        if record["kind"] == "bench augment"
        for row in record["metrics"]["rows"]
        if (row["method"], row["dataset"]) == (method, dataset)
    }


def _costs(what: str, ratios: Mapping[Path, float], scale: str) -> Verdict:
    if not ratios:
        return Verdict("not tested", "not measured")
    text = f"{what} {', '.join(f'{ratio:.2f}' for ratio in ratios.values())} times as long as without"
    small = [ratio <= _NEGLIGIBLE for ratio in ratios.values()]
    mark = "reproduced" if all(small) else "partly" if any(small) else "contradicted"
    return Verdict(mark, text, scale, tuple(ratios))


def negligible(runs: Runs) -> Verdict:
    """CLOP costs next to nothing, in agents and in classifiers."""
    parts = [cost_of_training(runs)]
    parts += [
        _costs(f"a pass over {d} takes", cost_of_a_pass("clop", d)(runs), "bench augment")
        for d in ("mnist", "imagenette")
    ]
    known = [part for part in parts if part.mark != "not tested"]
    if not known:
        return parts[0]
    marks = {part.mark for part in known}
    mark = "partly" if len(marks) > 1 or len(known) < len(parts) else marks.pop()
    paths = tuple(dict.fromkeys(path for part in known for path in part.runs))
    return Verdict(mark, "; ".join(part.statistic for part in known), "clop bench methods, clop bench augment", paths)


def pass_costs(dataset: str, printed: Mapping[str, float]) -> Rule:
    """Our ratios to a pass without augmentation lie within 0.05 of the printed ones."""

    def decide_it(runs: Runs) -> Verdict:
        found = {method: cost_of_a_pass(method, dataset)(runs) for method in printed}
        if not any(found.values()):
            return Verdict("not tested", "not measured")
        parts, near, paths = [], [], []
        for method, ratios in found.items():
            for path, ratio in ratios.items():
                near.append(abs(ratio - printed[method]) <= 0.05)
                parts.append(f"{method} {ratio:.2f} against {printed[method]:.2f}")
                paths.append(path)
        mark = "reproduced" if all(near) else "partly" if any(near) else "contradicted"
        return Verdict(mark, "ratios to none: " + ", ".join(parts), "clop bench augment", tuple(dict.fromkeys(paths)))

    return decide_it


def same(games: Sequence[str]) -> Rule:
    """CLOP's return on unseen levels is PPO's: the interval of the difference stays within a fifth of PPO's."""

    def decide_it(runs: Runs) -> Verdict:
        found = agents("clop", "ppo", "test", games)(runs)
        bases = {
            (cell.game, f"{cell.scale}, {steps_text(cell.env_steps)} steps"): cell.estimate("test").value
            for cell in cells(runs.agents)
            if cell.variant == "ppo"
        }
        within = []
        for one in found:
            d, bound = one.difference, abs(bases[one.subject, one.scale]) / 5
            if d.low is not None and d.high is not None:
                margin = min(bound - d.high, bound + d.low)
                decisive = Estimate(margin, margin, margin, d.n)
                within.append(Comparison(one.subject, f"{one.text}, room to ±20 %", decisive, one.scale, one.runs))
        return decide(within or found, games, every=True)

    return decide_it


def best_of(games: Sequence[str], method: str = "clop") -> Rule:
    """A method has a higher return on unseen levels than each of the paper's others."""
    others = [agents(method, other, "test", games) for other in METHODS if other != method]
    return rule(all_of(*others), games)
