"""Runs as reports see them: found below folders, read without torch. What cannot be read is stated, not dropped."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from clop.errors import UsageError
from clop.experiments.summaries import AgentSummary, Stage, VisionSummary, check_version
from clop.report import settings

_POINTS = 400  # of a curve; runs of the paper's length have more, which no figure shows


@dataclass(frozen=True)
class CurvePoint:
    """A line of the metrics of an agent."""

    env_steps: int
    train_return: float | None
    """Running, over the last 100 episodes of training, as the agent acted."""
    test_return: float | None
    """Of a small test on unseen levels, in evaluation mode."""


@dataclass(frozen=True)
class AgentRun:
    """A finished run of an agent."""

    path: Path
    about: Mapping[str, Any] = field(repr=False)
    """What ``config.json`` says."""
    stages: tuple[Stage, ...] = field(repr=False)
    """By steps; the last is the end of the run."""

    @property
    def config(self) -> Mapping[str, Any]:
        return self.about["config"]

    @property
    def game(self) -> str:
        return self.config["game"]

    @property
    def seed(self) -> int:
        return self.config["seed"]

    @property
    def mode(self) -> str:
        return self.config["distribution_mode"]

    @cached_property
    def variant(self) -> str:
        return settings.variant(self.game, self.config["methods"])

    @cached_property
    def scale_key(self) -> str:
        return settings.scale_key(self.config)

    @cached_property
    def scale(self) -> str:
        return settings.scale_text(self.config)

    @property
    def end(self) -> Stage:
        return self.stages[-1]

    def at(self, env_steps: int) -> Stage | None:
        """The evaluations after exactly so many steps."""
        return next((stage for stage in self.stages if stage.env_steps == env_steps), None)

    @cached_property
    def curve(self) -> Sequence[CurvePoint]:
        """At most a few hundred points, all tests among them."""
        return _curve(self.path / "metrics.jsonl")

    @cached_property
    def train_curve(self) -> list[tuple[float, float]]:
        """Steps and running return on training levels."""
        return [(float(p.env_steps), float(p.train_return)) for p in self.curve if p.train_return is not None]

    @cached_property
    def test_curve(self) -> list[tuple[float, float]]:
        """Steps and return on unseen levels: of tests on the way, and of the evaluations of each stage."""
        points = {p.env_steps: p.test_return for p in self.curve if p.test_return is not None}
        points |= {stage.env_steps: stage.test.mean for stage in self.stages}
        return sorted((float(steps), float(value)) for steps, value in points.items())


@dataclass(frozen=True)
class VisionRun:
    """A finished run of a classifier."""

    path: Path
    about: Mapping[str, Any] = field(repr=False)
    """What ``config.json`` says."""
    summary: VisionSummary = field(repr=False)

    @property
    def config(self) -> Mapping[str, Any]:
        return self.about["config"]


@dataclass(frozen=True)
class Problem:
    """A run that is in no table, and why."""

    path: Path
    kind: str
    """``unfinished``, ``damaged`` or ``duplicate``."""
    text: str


@dataclass(frozen=True)
class Runs:
    """All that was found."""

    agents: tuple[AgentRun, ...] = ()
    classifiers: tuple[VisionRun, ...] = ()
    benchmarks: Mapping[Path, Mapping[str, Any]] = field(default_factory=dict)
    """Records of ``clop bench … --json``."""
    saliency: Mapping[Path, Mapping[str, Any]] = field(default_factory=dict)
    """Records of ``clop saliency --measure``."""
    problems: tuple[Problem, ...] = ()

    @classmethod
    def find(cls, paths: Iterable[Path | str]) -> "Runs":
        """Run folders and records of benchmarks at these paths and below: a run, a sweep, or a folder of them."""
        paths = list(paths)
        agents: list[AgentRun] = []
        classifiers: list[VisionRun] = []
        benchmarks: dict[Path, Mapping[str, Any]] = {}
        saliency: dict[Path, Mapping[str, Any]] = {}
        problems: list[Problem] = []
        for folder in _folders(paths):
            try:
                about = _read(folder / "config.json")
                check_version(about, folder / "config.json")
                if not (folder / "summary.json").exists():
                    problems.append(Problem(folder, "unfinished", _how_far(folder, about)))
                elif about["kind"] == "agent":
                    agents.append(_agent(folder, about))
                elif about["kind"] == "vision":
                    values = _read(folder / "summary.json")
                    classifiers.append(
                        VisionRun(folder, about, VisionSummary.fromdict(values, folder / "summary.json"))
                    )
                else:
                    problems.append(Problem(folder, "damaged", f"holds a run of unknown kind {about['kind']!r}"))
            except (UsageError, KeyError, TypeError, AttributeError) as error:
                why = f"lacks {error}" if isinstance(error, KeyError) else str(error)
                problems.append(Problem(folder, "damaged", why))
        for path in _json_files(paths):
            values = _read_quietly(path)
            if str(values.get("kind", "")).startswith("bench ") and "metrics" in values:
                benchmarks[path] = values
            elif values.get("kind") == "saliency" and "metrics" in values:
                saliency[path] = values
        agents, twice = _once(agents, _agent_identities)
        classifiers, again = _once(classifiers, _vision_identities)
        return cls(tuple(agents), tuple(classifiers), benchmarks, saliency, (*problems, *twice, *again))

    def select(self, **wanted: Any) -> list[AgentRun]:
        """Agents with these attributes, such as ``game="bigfish", variant="clop"``."""
        return [run for run in self.agents if all(getattr(run, name) == value for name, value in wanted.items())]


def _folders(paths: Iterable[Path | str]) -> Iterator[Path]:
    seen = set()
    for path in map(Path, paths):
        if not path.exists():
            raise UsageError(f"{path} does not exist; expected a run, a sweep, or a folder that holds some")
        found = [path] if (path / "config.json").exists() else sorted(p.parent for p in path.rglob("config.json"))
        for folder in found:
            if folder.resolve() not in seen:
                seen.add(folder.resolve())
                yield folder


def _json_files(paths: Iterable[Path | str]) -> Iterator[Path]:
    for path in map(Path, paths):
        if path.suffix == ".json":
            yield path
        elif not (path / "config.json").exists():
            inside = {"config.json", "summary.json", "sweep.json"}
            yield from sorted(
                p for p in path.rglob("*.json") if p.name not in inside and p.parent.name != "evaluations"
            )


def _read(path: Path) -> dict[str, Any]:
    try:
        values = json.loads(path.read_text())
    except (ValueError, OSError) as error:
        raise UsageError(f"{path.name} cannot be read: {error}") from None
    if not isinstance(values, dict):
        raise UsageError(f"{path.name}: expected a JSON object")
    return values


def _read_quietly(path: Path) -> dict[str, Any]:
    """Nothing for a JSON file of something else."""
    try:
        return _read(path)
    except UsageError:
        return {}


def _agent(folder: Path, about: Mapping[str, Any]) -> AgentRun:
    values = _read(folder / "summary.json")
    run = AgentRun(folder, about, AgentSummary.fromdict(values, folder / "summary.json").stages)
    _ = run.variant, run.scale, run.scale_key  # a config that lacks a setting is found here
    return run


def _how_far(folder: Path, about: Mapping[str, Any]) -> str:
    config = about.get("config", {})
    points = _lines(folder / "metrics.jsonl")
    last = json.loads(points[-1]) if points else {}
    if about.get("kind") == "agent":
        return f"at {last.get('env_steps', 0)} of {config.get('total_timesteps')} steps"
    return f"at {last.get('epoch', 0):.2g} of {config.get('epochs')} epochs"


def _lines(path: Path) -> list[str]:
    """Those that are complete; the last one of a killed run may not be."""
    text = path.read_text() if path.exists() else ""
    return text[: text.rfind("\n") + 1].splitlines()


def _curve(path: Path) -> list[CurvePoint]:
    lines = _lines(path)
    every = -(-len(lines) // _POINTS)
    last = len(lines) - 1
    kept = [line for i, line in enumerate(lines) if (last - i) % every == 0 or '"test_return"' in line]
    try:
        rows = [json.loads(line) for line in kept]
    except ValueError as error:
        raise UsageError(f"{path} is damaged: {error}") from None
    return [CurvePoint(row["env_steps"], row.get("episodic_return"), row.get("test_return")) for row in rows]


def _agent_identities(run: AgentRun) -> list[Any]:
    return [(run.game, run.variant, run.scale_key, run.seed, stage.env_steps) for stage in run.stages]


def _vision_identities(run: VisionRun) -> list[Any]:
    summary = run.summary
    return [(summary.task, summary.label, summary.scale, summary.source, summary.seed)]


_Run = TypeVar("_Run", AgentRun, VisionRun)


def _once(runs: list[_Run], identities: Callable[[_Run], list[Any]]) -> tuple[list[_Run], list[Problem]]:
    """Runs whose settings, seed and steps no run before them has, and the others: a run and its copy are not two."""
    kept, problems = [], []
    seen: dict[Any, Path] = {}
    for run in runs:
        first = next((seen[key] for key in identities(run) if key in seen), None)
        if first is not None:
            problems.append(Problem(run.path, "duplicate", f"has the settings, the seed and the steps of {first}"))
            continue
        kept.append(run)
        seen |= dict.fromkeys(identities(run), run.path)
    return kept, problems
