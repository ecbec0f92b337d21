"""``clop bench return``: how long learners train until they reach returns on unseen levels."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any, Protocol

from clop.bench.benchmark import BenchSettings, Report, Result, silent
from clop.bench.contestants import check_sb3, start_together, take_turns_together
from clop.bench.own_process import OwnProcess, TakeTurns
from clop.distributed import Workers
from clop.errors import UsageError
from clop.experiments.agents import AgentWork
from clop.rl.build import check_run
from clop.rl.config import TrainConfig
from clop.rl.evaluate import evaluate
from clop.rl.protocols import EvalConfig

DESCRIPTION = (
    "Train one learner after the other on the same levels of a game until the return on unseen levels, the mean of the "
    "last two tests, reaches the highest of some scores: clop's presets quick and procgen-easy, and "
    "Stable-Baselines3's PPO with its own CnnPolicy and with IMPALA, both with the settings of quick. Only training "
    "counts, not the tests. A learner is given up after some minutes. Up to an hour and a half."
)
QUICK = "clop, quick"
_NO_END = 1_000_000_000  # the clock ends a run, not its preset; learning rates are constant


@dataclass(frozen=True)
class Settings(BenchSettings):
    """What is to be reached, and who takes part."""

    game: str = field(default="starpilot", metadata={"positional": True})
    """Game to learn."""
    reach: str = "5"
    """Returns on unseen levels whose times are taken, with commas between them."""
    minutes: float = 20.0
    """Minutes of training after which a learner is given up; it is looked at after each test."""
    num_levels: int = 50
    """Training levels."""
    method: str = "ppo"
    """Method of clop's learners, as in clop train."""
    test_every: int = 16_384
    """Env steps between tests."""
    test_episodes: int = 64
    """Episodes of each test, by the protocol clop-v1."""
    processes: int = 2
    """Processes of clop's learners, and threads of Stable-Baselines3's."""
    without_sb3: bool = False
    """Leave Stable-Baselines3 out, which is slow."""

    def __post_init__(self) -> None:
        super().__post_init__()
        _ = self.scores
        if not self.minutes > 0:
            raise UsageError(f"minutes must be positive, got {self.minutes}")
        for contestant in contestants(self):  # an unknown game or method is refused before the first has trained
            check_run(contestant.config)

    @property
    def scores(self) -> list[float]:
        """The returns to reach, the highest last."""
        try:
            return sorted({float(score) for score in self.reach.split(",")})
        except ValueError:
            raise UsageError(f"reach: expected returns with commas between them, got {self.reach!r}") from None

    def asdict(self) -> dict[str, Any]:
        values = super().asdict()
        del values["without_sb3"]  # the rows say it
        return values


@dataclass(frozen=True)
class Contestant:
    """A learner and the settings of its run."""

    name: str
    config: TrainConfig
    sb3_encoder: str | None = None
    """For Stable-Baselines3: ``impala``, or ``nature`` for its own ``CnnPolicy``."""


@dataclass(frozen=True)
class Point:
    """One test on unseen levels."""

    steps: int
    seconds: float
    """Of training, until then."""
    test_return: float


@dataclass(frozen=True)
class Row:
    """How one learner did."""

    what: str
    scores: Sequence[float]
    tests: Sequence[Point]

    @property
    def last(self) -> Point:
        return self.tests[-1]

    @property
    def steps_per_second(self) -> float:
        return self.last.steps / self.last.seconds

    def seconds_to(self, score: float) -> float | None:
        """Of training, until the mean of two tests was there; None if it never was."""
        ends = (count for count in range(len(self.tests) + 1) if has_reached(self.tests[:count], score))
        return next((self.tests[count - 1].seconds for count in ends), None)

    def time_text(self, score: float) -> str:
        """Seconds, or what became of it."""
        seconds = self.seconds_to(score)
        return f"not in {self.last.seconds / 60:.0f} min" if seconds is None else f"{seconds:.0f}"

    def asdict(self) -> dict[str, Any]:
        return {
            "what": self.what,
            "seconds_to": {f"{score:g}": self.seconds_to(score) for score in self.scores},
            "tests": [asdict(test) for test in self.tests],
            "seconds": self.last.seconds,
            "steps": self.last.steps,
            "steps_per_second": self.steps_per_second,
            "test_return": self.last.test_return,
        }


def run(settings: Settings, report: Report = silent) -> Result:
    check_sb3(settings.without_sb3)
    rows = measure(settings, report)
    header = [
        "learner",
        *(f"seconds to {score:g}" for score in settings.scores),
        "steps",
        "steps/s",
        "last test return",
    ]
    cells = [
        [
            row.what,
            *map(row.time_text, settings.scores),
            str(row.last.steps),
            f"{row.steps_per_second:.0f}",
            f"{row.last.test_return:.2f}",
        ]
        for row in rows
    ]
    leads = {f"{score:g}": lead for score in settings.scores if (lead := lead_of_quick(rows, score)) is not None}
    notes = [
        f"{settings.game}, {settings.num_levels} levels, {settings.processes} processes or threads; seconds of "
        f"training until a return on unseen levels: the mean of two tests of {settings.test_episodes} "
        f"episodes, one every {settings.test_every} steps, not counted in the time",
        *(
            f"to {score}: the best of Stable-Baselines3 takes {lead.text} times as long as {QUICK}"
            for score, lead in leads.items()
        ),
    ]
    return Result(
        rows, header, cells, "\n".join(notes), {"lead": {score: asdict(lead) for score, lead in leads.items()}}
    )


@dataclass(frozen=True)
class Lead:
    """Seconds of the best of the others over ours."""

    over: str
    ratio: float
    at_least: bool
    """Whether the other has not arrived."""

    @property
    def text(self) -> str:
        return f"{'at least ' if self.at_least else ''}{self.ratio:.1f}"


def lead_of_quick(rows: Sequence[Row], score: float) -> Lead | None:
    """Over the best of Stable-Baselines3: the first to arrive, or else the one that trained least, whose time is a
    bound; None if there is none, or if quick has not arrived."""
    ours = next((row.seconds_to(score) for row in rows if row.what == QUICK), None)
    others = [row for row in rows if row.what.startswith("Stable-Baselines3")]
    if ours is None or not others:
        return None
    arrived = [(seconds, row.what) for row in others if (seconds := row.seconds_to(score)) is not None]
    seconds, name = min(arrived or [(row.last.seconds, row.what) for row in others])
    return Lead(name, seconds / ours, not arrived)


def contestants(settings: Settings) -> list[Contestant]:
    shared: dict[str, Any] = {"num_levels": settings.num_levels, "total_timesteps": _NO_END}
    ours: dict[str, Any] = shared | {"processes": settings.processes}
    quick = TrainConfig.preset("quick", settings.game, **shared)
    learners = [
        Contestant(QUICK, TrainConfig.preset("quick", settings.game, settings.method, **ours)),
        Contestant("clop, procgen-easy", TrainConfig.preset("procgen-easy", settings.game, settings.method, **ours)),
    ]
    if not settings.without_sb3:
        learners += [
            Contestant("Stable-Baselines3, CnnPolicy", quick, "nature"),
            Contestant("Stable-Baselines3, impala", quick, "impala"),
        ]
    return learners


def measure(settings: Settings, report: Report = silent) -> list[Row]:
    """One learner after the other, each in processes of its own."""
    return [_measured(contestant, settings, report) for contestant in contestants(settings)]


def _measured(contestant: Contestant, settings: Settings, report: Report) -> Row:
    tests: list[Point] = []
    body = partial(_take_part, contestant, settings.test_every, settings.test_episodes)
    threads = 1 if contestant.sb3_encoder is None else settings.processes
    with OwnProcess(contestant.name, body, threads) as process:
        finished = False
        while not (finished or has_reached(tests, settings.scores[-1]) or _is_late(tests, settings.minutes)):
            test, finished = process.turn()
            tests.append(test)
            report(
                f"{contestant.name}: {test.test_return:.2f} on unseen levels after {test.steps} steps, "
                f"{test.seconds:.0f} s"
            )
    return Row(contestant.name, settings.scores, tests)


def has_reached(tests: Sequence[Point], score: float) -> bool:
    """Whether the mean of the last two tests is there: a single one may be luck."""
    return len(tests) > 1 and statistics.mean(test.test_return for test in tests[-2:]) >= score


def _is_late(tests: Sequence[Point], minutes: float) -> bool:
    return bool(tests) and tests[-1].seconds >= 60 * minutes


# ---- in the process of a learner -----------------------------------------------------------------------------------


class Work(Protocol):
    """A learner in training: ours, or Stable-Baselines3's."""

    @property
    def seconds(self) -> float: ...
    @property
    def done(self) -> int: ...
    @property
    def finished(self) -> bool: ...
    def step(self) -> Any: ...
    def agent(self) -> Any: ...


def _take_part(contestant: Contestant, test_every: int, test_episodes: int, take_turns: TakeTurns) -> None:
    config = contestant.config
    if contestant.sb3_encoder is None:
        start_together(config, partial(_clop_process, config, test_every, test_episodes, take_turns))
        return
    from clop.bench.sb3 import SB3Work

    work = SB3Work(config, contestant.sb3_encoder)
    take_turns(partial(train_and_test, work, config, test_every, test_episodes))


def _clop_process(config: TrainConfig, test_every: int, test_episodes: int, take_turns: TakeTurns) -> None:
    workers = Workers()
    work = AgentWork(config, "cpu", workers)
    turn = partial(train_and_test, work, config, test_every, test_episodes, is_first=workers.is_first)
    take_turns_together(workers, take_turns, turn)


def train_and_test(
    work: Work, config: TrainConfig, test_every: int, test_episodes: int, is_first: bool = True
) -> tuple[Point, bool]:
    """Train up to the next test or the end, and test in the first process, the same way for all; whether it is the
    end."""
    due = test_every * (work.done // test_every + 1)
    while work.done < due and not work.finished:
        work.step()
    score = math.nan
    if is_first:
        score = evaluate(work.agent(), config.levels, EvalConfig(episodes=test_episodes), backend=config.backend).mean
    return Point(work.done, work.seconds, score), work.finished
