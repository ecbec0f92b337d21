"""What a sweep runs: grids of agents and of classifiers, from a TOML file or from the paper."""

import itertools
import math
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from clop.errors import UsageError, unknown_name
from clop.experiments.sweep.jobs import Job, agent_job, vision_job

TEST_EVERY = 250_000
"""Env steps between tests on unseen levels, unless a sweep says otherwise; no part of the total, so that runs grow."""


@dataclass(frozen=True)
class AgentGrid:
    """Games × methods × seeds × settings."""

    games: tuple[str, ...]
    methods: tuple[str, ...]
    """As ``clop train --method`` takes them: ``rad+clop(alpha=0.3)``."""
    seeds: tuple[int, ...]
    preset: str = "procgen-easy"
    settings: Mapping[str, Any] = field(default_factory=dict)
    """By name; a list multiplies."""

    def jobs(self) -> Iterator[Job]:
        """Seed by seed, so that a sweep that is cut short has a little of everything."""
        from clop.rl.config import TrainConfig

        for seed, chosen in itertools.product(self.seeds, _combinations(self.settings)):
            for game, method in itertools.product(self.games, self.methods):
                settings = {"test_every": TEST_EVERY, **chosen, "seed": seed}
                config = TrainConfig.preset(self.preset, game, method, **settings)
                yield agent_job(config, _varied(self.settings, chosen))

    def narrowed(self, games: Sequence[str], methods: Sequence[str]) -> "AgentGrid":
        """The part of the grid with these games and methods; all of them where none are named."""
        return replace(
            self,
            games=tuple(game for game in self.games if not games or game in games),
            methods=tuple(method for method in self.methods if not methods or method in methods),
        )


@dataclass(frozen=True)
class ClassifierGrid:
    """One task × methods × seeds × settings."""

    task: str
    methods: tuple[str, ...]
    seeds: tuple[int, ...]
    settings: Mapping[str, Any] = field(default_factory=dict)

    def jobs(self) -> Iterator[Job]:
        from clop.fields import checked
        from clop.vision import methods
        from clop.vision.train import VisionConfig, paper_config

        for seed, chosen in itertools.product(self.seeds, _combinations(self.settings)):
            for method in self.methods:
                settings = checked(VisionConfig, {**chosen, "seed": seed})
                config = paper_config(self.task, **settings, methods=methods.parse(method))
                yield vision_job(config, _varied(self.settings, chosen))

    def narrowed(self, tasks: Sequence[str], methods: Sequence[str]) -> "ClassifierGrid":
        """The part of the grid with these tasks and methods; all of them where none are named."""
        kept = tuple(method for method in self.methods if not methods or method in methods)
        return replace(self, methods=kept if not tasks or self.task in tasks else ())


Grid = AgentGrid | ClassifierGrid


@dataclass(frozen=True)
class Sweep:
    """Some grids with a name."""

    name: str
    grids: tuple[Grid, ...]
    about: str = ""
    covers: tuple[str, ...] = ()
    """The tables and figures of the paper that these runs fill, such as ``table2``."""

    def jobs(self) -> list[Job]:
        """All jobs, each once, in the order in which they are to be run."""
        found: dict[tuple[str, int], Job] = {}
        for job in itertools.chain.from_iterable(grid.jobs() for grid in self.grids):
            found.setdefault((job.id, job.total), job)
        return _with_distinct_titles(list(found.values()))

    def changed(
        self,
        games: Sequence[str] = (),
        methods: Sequence[str] = (),
        seeds: Sequence[int] = (),
        preset: str | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> "Sweep":
        """A part of the sweep, or other seeds, preset or settings of its agents."""
        _check_part("game or task", games, [*self._subjects()])
        _check_part("method", methods, [method for grid in self.grids for method in grid.methods])
        grids: list[Grid] = []
        for grid in (grid.narrowed(games, methods) for grid in self.grids):
            if isinstance(grid, AgentGrid):
                grid = replace(grid, preset=preset or grid.preset, settings={**grid.settings, **(settings or {})})
            if grid.methods and (isinstance(grid, ClassifierGrid) or grid.games):
                grids.append(replace(grid, seeds=tuple(seeds)) if seeds else grid)
        return replace(self, grids=tuple(grids))

    def _subjects(self) -> Iterator[str]:
        for grid in self.grids:
            yield from grid.games if isinstance(grid, AgentGrid) else (grid.task,)


def _with_distinct_titles(jobs: list[Job]) -> list[Job]:
    """The same jobs; titles that would be alike, as of grids with one method and another setting, name what differs."""
    alike: dict[str, dict[tuple[str, int], dict[str, Any]]] = {}
    for job in jobs:
        alike.setdefault(job.title, {})[job.id, job.total] = _flat(job.config)
    renamed = []
    for job in jobs:
        others = alike[job.title].values()
        names = sorted({name for settings in others for name in settings})
        values = {name: [settings.get(name) for settings in others] for name in names}
        own = alike[job.title][job.id, job.total]
        differing = [f"{name} {own.get(name)}" for name in names if any(v != values[name][0] for v in values[name])]
        renamed.append(replace(job, title=", ".join([job.title, *differing])))
    return renamed


def _flat(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Settings by dotted names."""
    found: dict[str, Any] = {}
    for name, value in settings.items():
        found |= _flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {prefix + name: value}
    return found


def _check_part(what: str, wanted: Sequence[str], known: Sequence[str]) -> None:
    for name in wanted:
        if name not in known:
            raise UsageError(f"this sweep has no such part: {unknown_name(what, name, dict.fromkeys(known))}")


def _combinations(settings: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """One value of each setting; lists multiply, and a list of lists is for settings that are lists themselves."""
    values = [
        value if isinstance(value, list) and not _is_one(name, value) else [value] for name, value in settings.items()
    ]
    for chosen in itertools.product(*values):
        yield dict(zip(settings, chosen, strict=True))


def _varied(settings: Mapping[str, Any], chosen: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of which there are several, as chosen."""
    return {name: value for name, value in chosen.items() if isinstance(settings[name], list)}


def _is_one(name: str, value: list[Any]) -> bool:
    return name == "wrappers" and all(isinstance(part, str) for part in value)


# ---- sweep files -------------------------------------------------------------------------------------------------

_AGENT_KEYS = ("games", "methods", "seeds", "preset", "settings")
_CLASSIFIER_KEYS = ("task", "methods", "seeds", "settings")
_FILE_KEYS = ("name", "about", *_AGENT_KEYS, "agents", "classifiers")


def read_sweep(path: Path) -> Sweep:
    """A sweep from a TOML file: one grid of agents at the top or several as ``[[agents]]``, and ``[[classifiers]]``."""
    try:
        values = tomllib.loads(path.read_text())
    except FileNotFoundError:
        raise UsageError(f"there is no sweep file {path}; see the named sweeps with: clop sweep list") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is no TOML file: {error}") from None
    try:
        return _sweep(values, path)
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from None


def _sweep(values: Mapping[str, Any], path: Path) -> Sweep:
    _check_keys(values, _FILE_KEYS, "key")
    name = values.get("name", path.stem)
    if not isinstance(name, str) or not re.fullmatch(r"[\w.+-]+", name):
        raise UsageError(f"name: expected letters, digits, dots and dashes, got {name!r}")
    grids: list[Grid] = []
    top = {key: values[key] for key in _AGENT_KEYS if key in values}
    for grid in [*([top] if top else []), *_tables(values, "agents")]:
        _check_keys(grid, _AGENT_KEYS, "key of a grid of agents")
        grids.append(
            AgentGrid(
                _names(grid, "games"),
                _names(grid, "methods"),
                seeds_of(grid.get("seeds", 1)),
                _text(grid.get("preset", "procgen-easy"), "preset"),
                _settings(grid.get("settings", {})),
            )
        )
    for grid in _tables(values, "classifiers"):
        _check_keys(grid, _CLASSIFIER_KEYS, "key of a grid of classifiers")
        if "task" not in grid:
            raise UsageError('a grid of classifiers needs its task, for example task = "mnist-usps"')
        grids.append(
            ClassifierGrid(
                _text(grid["task"], "task"),
                _names(grid, "methods"),
                seeds_of(grid.get("seeds", 1)),
                _settings(grid.get("settings", {})),
            )
        )
    if not grids:
        raise UsageError('nothing to run: name games and methods, for example games = ["bigfish"], methods = ["clop"]')
    return Sweep(name, tuple(grids), _text(values.get("about", ""), "about"))


def _check_keys(values: Mapping[str, Any], known: Sequence[str], what: str) -> None:
    for key in values:
        if key not in known:
            raise UsageError(unknown_name(what, key, known))


def _tables(values: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    found = values.get(key, [])
    if not isinstance(found, list) or not all(isinstance(part, dict) for part in found):
        raise UsageError(f"{key}: expected tables under [[{key}]], got {found!r}")
    return found


def _names(grid: Mapping[str, Any], key: str) -> tuple[str, ...]:
    found = grid.get(key)
    if not isinstance(found, list) or not found or not all(isinstance(name, str) for name in found):
        raise UsageError(f'{key}: expected a list of names such as ["bigfish"], got {found!r}')
    return tuple(found)


def _text(value: object, key: str) -> str:
    if not isinstance(value, str):
        raise UsageError(f"{key}: expected a text, got {value!r}")
    return value


def _settings(values: object) -> dict[str, Any]:
    """Settings by name; a table in them is a group, ``[settings.ppo]`` the same as ``"ppo.num_envs"``."""
    if not isinstance(values, dict):
        raise UsageError(f"settings: expected a table, got {values!r}")
    found: dict[str, Any] = {}
    for name, value in values.items():
        if name == "seed":
            raise UsageError("settings: seed is not one of them; use seeds")
        found |= (
            {f"{name}.{inner}": part for inner, part in value.items()} if isinstance(value, dict) else {name: value}
        )
        if value == []:
            raise UsageError(f"settings: {name} is an empty list, which leaves nothing to run")
    return found


def seeds_of(value: object) -> tuple[int, ...]:
    """A number of seeds from 0 on, or a list of them."""
    found = range(value) if isinstance(value, int) and not isinstance(value, bool) and value > 0 else value
    if not isinstance(found, range | list) or not found:
        raise UsageError(f"seeds: expected a number of at least 1 or a list of seeds, got {value!r}")
    for seed in found:
        if not isinstance(seed, int) or isinstance(seed, bool) or not 0 <= seed < math.inf:
            raise UsageError(f"seeds: expected integers of at least 0, got {seed!r}")
    return tuple(found)
