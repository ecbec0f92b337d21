"""Runs as reports see them: found below folders, read without torch. What cannot be read is stated, not dropped."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from clop.errors import UsageError
from clop.experiments.summaries import AgentSummary, Stage, VisionSummary, check_version
from clop.report import settings
from clop.report.checks import check_agent, check_classifier, check_record

_DAMAGE = (UsageError, KeyError, TypeError, AttributeError, ValueError, OSError)
_OF_A_RUN = ("config.json", "summary.json")  # one of which may have been lost
_POINTS = 400  # of a curve; runs of the paper's length have more, which no figure shows


class CurvePoint(NamedTuple):
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

    def last_metrics(self, env_steps: int, count: int) -> list[dict[str, Any]]:
        """What the last iterations before so many steps have logged."""
        rows = _rows(self.path / "metrics.jsonl", lambda lines: lines)
        return [row for row in rows if row["env_steps"] <= env_steps][-count:]

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
    kept: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)
    """What several tables and figures are made of, by name, so that it is computed once."""

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
                    classifiers.append(_classifier(folder, about))
                else:
                    problems.append(Problem(folder, "damaged", f"holds a run of unknown kind {about['kind']!r}"))
            except _DAMAGE as error:
                problems.append(Problem(folder, "damaged", _why(error)))
        for path in _json_files(paths):
            try:
                values = json.loads(path.read_text())
                kind = str(values.get("kind", "")) if isinstance(values, dict) else ""
                if kind.startswith("bench ") or kind == "saliency":
                    check_record(values)
                    (saliency if kind == "saliency" else benchmarks)[path] = values
            except _DAMAGE as error:
                problems.append(Problem(path, "damaged", _why(error)))
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
        found = {path} if (path / "config.json").exists() else {p.parent for n in _OF_A_RUN for p in path.rglob(n)}
        for folder in sorted(found):
            if folder.resolve() not in seen:
                seen.add(folder.resolve())
                yield folder


def _json_files(paths: Iterable[Path | str]) -> Iterator[Path]:
    for path in map(Path, paths):
        if path.suffix == ".json":
            yield path
        elif not (path / "config.json").exists():
            inside = {"config.json", "summary.json"}
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


def _agent(folder: Path, about: Mapping[str, Any]) -> AgentRun:
    values = _read(folder / "summary.json")
    summary = AgentSummary.fromdict(values, folder / "summary.json")
    check_agent(about["config"], summary)
    run = AgentRun(folder, about, summary.stages)
    _ = run.variant, run.scale, run.scale_key, run.train_curve, run.test_curve  # what is damaged is found here
    return run


def _classifier(folder: Path, about: Mapping[str, Any]) -> VisionRun:
    summary = VisionSummary.fromdict(_read(folder / "summary.json"), folder / "summary.json")
    check_classifier(about["config"], summary)
    return VisionRun(folder, about, summary)


def _why(error: Exception) -> str:
    return f"lacks {error}" if isinstance(error, KeyError) else str(error)


def _how_far(folder: Path, about: Mapping[str, Any]) -> str:
    config = about.get("config", {})
    last = _rows(folder / "metrics.jsonl", lambda lines: lines[-1:])
    if about.get("kind") == "agent":
        return f"at {last[0]['env_steps'] if last else 0} of {config.get('total_timesteps')} steps"
    return f"at {last[0].get('epoch', 0) if last else 0:.2g} of {config.get('epochs')} epochs"


def _rows(path: Path, choose: Callable[[list[bytes]], list[bytes]]) -> list[dict[str, Any]]:
    """Some lines of metrics. The last one of a killed run may not be complete, and is not one of them."""
    lines = path.read_bytes().split(b"\n")[:-1] if path.exists() else []
    try:
        return json.loads(b"[" + b",".join(choose(lines)) + b"]")  # at once, which is faster than line by line
    except ValueError as error:
        raise UsageError(f"{path.name} cannot be read: {error}") from None


def _thinned(lines: list[bytes]) -> list[bytes]:
    every, last = -(-len(lines) // _POINTS), len(lines) - 1
    return [line for i, line in enumerate(lines) if (last - i) % every == 0 or b'"test_return"' in line]


def _curve(path: Path) -> list[CurvePoint]:
    rows = _rows(path, _thinned)
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
