"""Videos of agents at play: their frames, and beside them what they make of them."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from clop.errors import UsageError
from clop.progress import Progress
from clop.rl.agent import Agent, choose_actions
from clop.rl.envs.levels import LevelSet
from clop.rl.envs.spec import EnvSpec, Episodes
from clop.rl.envs.vector import VectorGames
from clop.rl.evaluate import Seeds
from clop.rl.games import INT32_MAX
from clop.rl.video import check_suffix, write_video

if TYPE_CHECKING:
    from PIL.Image import Image

SIZE = (880, 544)
"""Width and height of a video of one agent; multiples of 16, as encoders like it."""
TOGETHER = {2: 384, 3: 320, 4: 256}
"""Width of a panel by the number of agents side by side; each is a multiple of Procgen's 64 pixels."""

Box = tuple[int, int, int, int]  # left, top, right, bottom

_MARGIN, _FRAME = 16, 512  # pixels
_SMALLEST = 10  # size of text
_BAR_STEPS = (16, 30)  # the least and the most from one bar to the next
_GROUP_GAP = 11
_MAX_ROWS, _ROW = 9, 18  # of bars in a panel side by side; as many as Atari's 18 actions need
_DIRECTIONS = ("left down", "left", "left up", "down", "nothing", "up", "right down", "right", "right up")  # Procgen's
_PAPER, _INK, _FAINT, _GROOVE = (250, 250, 248), (32, 32, 32), (120, 120, 120), (228, 228, 226)
_BAR, _CHOSEN = (138, 170, 208), (214, 108, 46)


@dataclass(frozen=True)
class WatchConfig:
    """Which episodes a video shows."""

    split: Literal["train", "test"] = "test"
    """``train`` for levels seen in training, ``test`` for unseen ones, as in the protocol clop-v1."""
    episodes: int = 4
    greedy: bool = False
    """Whether to take the most probable action instead of a sampled one."""
    seed: int = 0
    fps: int = 15
    """Steps of the game in a second; 15 is what Procgen's games were made for."""

    def __post_init__(self) -> None:
        if min(self.episodes, self.fps) < 1:
            raise UsageError(f"episodes and fps must be at least 1, got {self.episodes} and {self.fps}")


class Moment(NamedTuple):
    """One frame, and what the agent thought and did."""

    frame: NDArray[np.uint8]
    """(H, W, C)"""
    probabilities: NDArray[np.float32]
    """(A,) of the actions"""
    action: int
    values: tuple[float, ...]
    """What the critic said in each step of the episode so far, the last for this frame"""
    level: int
    step: int
    total: float
    """Return so far; of the whole episode when it has ended"""
    outcome: str = ""
    """Empty while the episode runs; after it, the last frame is shown again with ``solved`` or ``ended``"""


def watch(
    agent: Agent,
    trained: LevelSet,
    path: Path,
    config: WatchConfig = WatchConfig(),  # noqa: B008 - frozen
    *,
    backend: str = "auto",
    progress: Progress | None = None,
) -> Episodes:
    """Write a video of whole episodes, and return how they went.

    Args:
        agent: Who plays, in evaluation mode.
        trained: The game, and the levels that the agent was trained on.
        path: Where to; the suffix decides between mp4, webm and gif.
        config: Which episodes.
        backend: Program that plays the games; it decides which levels are drawn.
        progress: Counts the episodes.
    """
    check_suffix(path)
    _check_agent(agent, trained, "the agent")
    levels, seeds = trained.split(config.split), Seeds.of(config.seed, config.split)
    action_rng = torch.Generator().manual_seed(seeds.actions)
    known = _known(trained, config.split)
    played: list[Episodes] = []

    def pictures(games: VectorGames) -> Iterator[tuple["Image", bool]]:
        while len(played) < config.episodes:
            for moment in _episode(agent, games, config.greedy, action_rng, played, progress):
                yield draw(moment, trained.title, known, agent.spec), bool(moment.outcome)

    with agent.playing(seeds.noise), levels.open(1, seeds.games, backend) as games:
        write_video(pictures(games), path, config.fps)
    return Episodes.concat(played)


def watch_together(
    agents: Mapping[str, Agent],
    trained: LevelSet,
    path: Path,
    config: WatchConfig = WatchConfig(),  # noqa: B008 - frozen
    *,
    backend: str = "auto",
    progress: Progress | None = None,
) -> dict[str, Episodes]:
    """Write a video of agents side by side on the same levels, and return how each of them did.

    An agent whose episode has ended waits at its last frame until all have ended; then the next level begins.

    Args:
        agents: Who plays, by the label to show; two to four.
        trained: The game, and the levels that all of them were trained on.
        path: Where to; the suffix decides between mp4, webm and gif.
        config: Which levels, and how many: ``episodes``.
        backend: Program that plays the games.
        progress: Counts the episodes of all agents.
    """
    check_suffix(path)
    if len(agents) not in TOGETHER:
        raise UsageError(f"a video shows two to four agents side by side, got {len(agents)}")
    for label, agent in agents.items():
        _check_agent(agent, trained, f"the agent {label!r}")
    seeds, known = Seeds.of(config.seed, config.split), _known(trained, config.split)
    action_rngs = {label: torch.Generator().manual_seed(seeds.actions) for label in agents}
    played: dict[str, list[Episodes]] = {label: [] for label in agents}
    spec = next(iter(agents.values())).spec

    def pictures() -> Iterator[tuple["Image", bool]]:
        for level in draw_levels(trained, config):
            with ExitStack() as stack:
                players = {}
                for label, agent in agents.items():
                    games = stack.enter_context(trained.single(level).open(1, seeds.games, backend))
                    rng, ended = action_rngs[label], played[label]
                    players[label] = _episode(agent, games, config.greedy, rng, ended, progress)
                for moments in _in_step(players):
                    last = all(moment.outcome for moment in moments.values())
                    yield draw_together(moments, trained.title, known, spec), last

    with ExitStack() as stack:
        for agent in agents.values():
            stack.enter_context(agent.playing(seeds.noise))
        write_video(pictures(), path, config.fps)
    return {label: Episodes.concat(episodes) for label, episodes in played.items()}


def draw_levels(trained: LevelSet, config: WatchConfig) -> list[int]:
    """Levels for agents to play one by one: different ones while there are enough, and for ``test`` no trained ones."""
    levels = trained.split(config.split)
    rng = np.random.default_rng(Seeds.of(config.seed, config.split).games)
    first, count = levels.start_level, levels.num_levels or INT32_MAX
    # Among all levels, those of training are left out.
    seen = trained.num_levels if count == INT32_MAX > trained.num_levels else 0
    count -= seen
    drawn = first + rng.choice(count, config.episodes, replace=config.episodes > count)
    return [int(level) + (seen if level >= trained.start_level else 0) for level in drawn]


def _check_agent(agent: Agent, trained: LevelSet, who: str) -> None:
    if agent.uses_batch_statistics:
        raise UsageError(
            f"{who} has batch norm with the statistics of the frames at hand, which needs many games at once, and a "
            "video shows one"
        )
    knows, game = agent.spec, trained.spec
    if (knows.obs_shape, knows.num_actions) != (game.obs_shape, game.num_actions):
        raise UsageError(
            f"{who} knows frames of {knows.obs_shape} and {knows.num_actions} actions, and {trained.game} has "
            f"{game.obs_shape} and {game.num_actions}; play the game that it was trained on"
        )


def _known(trained: LevelSet, split: str) -> str:
    """Whether the agent has seen the levels, in words; nothing if it was trained on all of them."""
    if trained.num_levels == 0:
        return ""
    return "seen in training" if split == "train" else "unseen"


def _episode(
    agent: Agent,
    games: VectorGames,
    greedy: bool,
    action_rng: torch.Generator,
    played: list[Episodes],
    progress: Progress | None,
) -> Iterator[Moment]:
    """One moment for each step and one for the end; by then ``played`` has the episode."""
    values: tuple[float, ...] = ()
    total = 0.0
    while True:
        frames = games.observe()
        output = agent(torch.from_numpy(frames.obs))
        action = choose_actions(output, greedy, action_rng)
        values += (float(output.known_value[0]),)
        probabilities = output.known_logits[0].softmax(-1).numpy()
        level, count = int(frames.level_seeds[0]), int(frames.episode_steps[0])
        moment = Moment(frames.obs[0], probabilities, int(action[0]), values, level, count, total)
        yield moment
        step = games.step(action.numpy())
        total += float(step.rewards[0])
        if step.dones[0]:
            played.append(step.finished)
            if progress is not None:
                progress.step(1, **{"return": float(step.finished.returns[0])})
            # The frame after the last action is never shown: the games give the next episode's first one instead.
            outcome = "solved" if step.finished.completed[0] else "ended"
            yield moment._replace(step=count + 1, total=total, outcome=outcome)
            return


def _in_step(players: Mapping[str, Iterator[Moment]]) -> Iterator[dict[str, Moment]]:
    """The moments of all players at once; who has ended stays at the last one."""
    moments = {label: next(player) for label, player in players.items()}
    yield moments
    while not all(moment.outcome for moment in moments.values()):
        moments = {label: next(player, moments[label]) for label, player in players.items()}
        yield moments


# ---- pictures --------------------------------------------------------------------------------------------------------


class _Bars(NamedTuple):
    """Where the bars of the actions are, and which actions have one."""

    boxes: tuple[Box, ...]
    """Of the bars, in the order of the actions"""
    labels: tuple[str, ...]
    """Of all actions"""
    label_width: int
    percent_width: int
    """0 if shares are not written"""
    text_size: int

    @property
    def hidden(self) -> int:
        """How many actions have no bar; then their number stands in place of the last one."""
        count = len(self.labels)
        return 0 if count <= len(self.boxes) else count - len(self.boxes) + 1

    def actions(self, chosen: int = 0) -> list[int]:
        """Those with a bar: all or the first ones, the last of which makes room for the chosen action."""
        shown = list(range(len(self.labels) - self.hidden))
        if chosen >= len(shown):
            shown[-1] = chosen
        return shown


class _Panel(NamedTuple):
    """Where the parts of one agent's picture are."""

    frame: Box
    numbers: tuple[int, int, int]
    """Left and right, and the line of the names"""
    number_size: int
    trace: Box
    outcome_size: int
    bars: _Bars


def draw(moment: Moment, title: str, known: str, spec: EnvSpec) -> "Image":
    """A picture of :data:`SIZE`.

    Args:
        moment: What to show.
        title: The game.
        known: Whether the agent has seen the level in training, in words.
        spec: What the game takes.
    """
    from PIL import ImageDraw

    panel = _single_panel(_names(spec))
    picture = _single_blank(title, panel).copy()
    pen = ImageDraw.Draw(picture)
    left, right, _ = panel.numbers
    _write(pen, (left, 56), _level_text(moment.level, known), _FAINT, 15, right - left)
    _draw_moment(picture, panel, moment)
    return picture


def draw_together(moments: Mapping[str, Moment], title: str, known: str, spec: EnvSpec) -> "Image":
    """A picture with a panel for each agent; both sides are multiples of 16.

    Args:
        moments: What to show, by label; two to four, all of one level.
        title: The game.
        known: Whether the agents have seen the level in training, in words.
        spec: What the game takes.
    """
    from PIL import ImageDraw

    panels = _panels_together(len(moments), _names(spec))
    picture = _blank_together(title, tuple(moments), panels).copy()
    pen = ImageDraw.Draw(picture)
    level = next(iter(moments.values())).level
    _write(pen, (picture.width - _MARGIN, 34), _level_text(level, known), _FAINT, 15, picture.width // 3, "rs")
    for panel, moment in zip(panels, moments.values(), strict=True):
        _draw_moment(picture, panel, moment)
    return picture


def as_image(frame: NDArray[np.uint8], side: int) -> "Image":
    """A frame (H, W, C) as large as fits into a square; by a whole factor, if that leaves less than a third of it free.

    One channel is grey, three are red, green and blue. Of several such triples the last is shown, as in stacked frames,
    and of other numbers of channels the last one.
    """
    from PIL import Image

    height, width, channels = frame.shape
    shown = frame[..., -3:] if channels % 3 == 0 else frame[..., -1]
    longest = max(height, width)
    whole = side // longest
    factor = whole if 3 * whole * longest >= 2 * side else side / longest
    size = (max(1, round(width * factor)), max(1, round(height * factor)))
    return Image.fromarray(np.ascontiguousarray(shown)).convert("RGB").resize(size, Image.Resampling.NEAREST)


def _draw_moment(picture: "Image", panel: _Panel, moment: Moment) -> None:
    from PIL import ImageDraw

    pen = ImageDraw.Draw(picture)
    left, top, right, bottom = panel.frame
    frame = as_image(moment.frame, right - left)
    picture.paste(frame, ((left + right - frame.width) // 2, (top + bottom - frame.height) // 2))
    if moment.outcome:
        height = 8 + 2 * panel.outcome_size
        pen.rectangle((left, bottom - height, right - 1, bottom - 1), _INK)
        text = f"{moment.outcome} after {moment.step} steps, return {moment.total:.4g}"
        middle = ((left + right) // 2, bottom - height // 2)
        _write(pen, middle, text, _PAPER, panel.outcome_size, right - left - 16, "mm")
    numbers = (f"{moment.step}", f"{moment.total:.4g}", f"{moment.values[-1]:.2f}")
    for (x, y, width), number in zip(_number_places(panel), numbers, strict=True):
        _write(pen, (x, y + panel.number_size + 4), number, _INK, panel.number_size, width)
    _draw_trace(pen, panel.trace, moment.values)
    _draw_bars(pen, panel.bars, moment.probabilities, moment.action)


def _draw_still(pen: Any, panel: _Panel) -> None:
    """What is the same in every picture of a panel."""
    left, top, right, bottom = panel.frame
    pen.rectangle((left, top, right - 1, bottom - 1), _GROOVE)
    for (x, y, width), name in zip(_number_places(panel), ("step", "return", "value"), strict=True):
        _write(pen, (x, y), name, _FAINT, 13, width)
    pen.rectangle(panel.trace, _GROOVE)
    bars = panel.bars
    first = bars.boxes[0]
    pen.text((first[0] - bars.label_width, first[1] - 10), "action probabilities", _FAINT, _font(13), anchor="ls")
    for action, box in zip(bars.actions(), bars.boxes, strict=False):
        pen.rectangle(box, _GROOVE)
        _draw_label(pen, bars, box, bars.labels[action], _INK)
    if bars.hidden:
        left, top, _, bottom = bars.boxes[-1]
        pen.text((left, (top + bottom) / 2), f"and {bars.hidden} more", _FAINT, _font(bars.text_size), anchor="lm")


def _draw_bars(pen: Any, bars: _Bars, probabilities: NDArray[np.float32], chosen: int) -> None:
    shares = probabilities.tolist()
    for action, box in zip(bars.actions(chosen), bars.boxes, strict=False):
        left, top, right, bottom = box
        colour = _CHOSEN if action == chosen else _BAR
        end = left + round(shares[action] * (right - left))
        if end > left:
            pen.rectangle((left, top, end, bottom), colour)
        if bars.percent_width:
            place, font = (right + bars.percent_width, (top + bottom) / 2), _font(bars.text_size)
            pen.text(place, f"{shares[action]:.0%}", _CHOSEN if action == chosen else _FAINT, font, anchor="rm")
        if action == chosen:
            pen.rectangle((left - bars.label_width, top - 3, left - 1, bottom + 3), _PAPER)
            _draw_label(pen, bars, box, bars.labels[action], _CHOSEN)


def _draw_label(pen: Any, bars: _Bars, box: Box, label: str, colour: tuple[int, int, int]) -> None:
    left, top, _, bottom = box
    pen.text((left - 8, (top + bottom) / 2), label, colour, _font(bars.text_size), anchor="rm")


def _draw_trace(pen: Any, box: Box, values: tuple[float, ...]) -> None:
    """The value's course in the last steps, from right to left into the past."""
    left, top, right, bottom = box
    recent = np.array(values[-((right - left) // 2 - 4) :])
    low, high = min(recent.min(), 0.0), max(recent.max(), 1.0)
    y = bottom - 2 - (recent - low) / (high - low) * (bottom - top - 4)
    x = right - 4 - 2.0 * np.arange(len(recent))[::-1]
    if len(recent) > 1:
        pen.line(list(zip(x.tolist(), y.tolist(), strict=True)), _BAR, 2)
    pen.ellipse((x[-1] - 3, y[-1] - 3, x[-1] + 3, y[-1] + 3), _CHOSEN)


# ---- where things are ------------------------------------------------------------------------------------------------


@lru_cache(maxsize=4)
def _single_panel(names: tuple[str, ...]) -> _Panel:
    edge = _MARGIN + _FRAME
    left, right = edge + _MARGIN, SIZE[0] - _MARGIN
    bars = _one_column(names, (left, 206, right, 532))
    return _Panel((_MARGIN, _MARGIN, edge, edge), (left, right, 90), 24, (left, 134, right, 174), 20, bars)


@lru_cache(maxsize=4)
def _panels_together(count: int, names: tuple[str, ...]) -> tuple[_Panel, ...]:
    panels, side = [], TOGETHER[count]
    for index in range(count):
        left, top = _MARGIN + index * (side + _MARGIN), 88
        right, under = left + side, top + side
        trace = (left, under + 54, right - 1, under + 88)
        bars = _two_columns(names, (left, under + 120, right, under + 120 + _MAX_ROWS * _ROW))
        panels.append(_Panel((left, top, right, under), (left, right, under + 22), 20, trace, 16, bars))
    return tuple(panels)


def _one_column(names: tuple[str, ...], box: Box) -> _Bars:
    """Bars one below the other, closer together the more there are."""
    left, top, right, bottom = box
    group = _group(names)
    room = bottom - top - (_GROUP_GAP if group else 0)
    least, most = _BAR_STEPS
    step = min(max(room // len(names), least), most)
    size = round(0.62 * step)
    text_size, label_width, labels = _labels(names, min(size, 15), 88, (right - left) // 2)
    bars = []
    for row in range(min(len(names), room // step)):
        y = top + row * step + (_GROUP_GAP if group and row >= group else 0)
        bars.append((left + label_width, y, right - 40, y + size))
    return _Bars(tuple(bars), labels, label_width, 40, text_size)


def _two_columns(names: tuple[str, ...], box: Box) -> _Bars:
    """Small bars, in two columns."""
    left, top, right, bottom = box
    rows = (bottom - top) // _ROW
    first = min(_group(names) or (len(names) + 1) // 2, rows)
    width = (right - left - _MARGIN) // 2
    percent_width = 32 if width >= 150 else 0
    text_size, label_width, labels = _labels(names, 12, 0, width - percent_width - 26)
    bars = []
    for place in range(min(len(names), first + rows)):
        column, row = (0, place) if place < first else (1, place - first)
        x, y = left + column * (width + _MARGIN), top + row * _ROW
        bars.append((x + label_width, y, x + width - percent_width - 1, y + 12))
    return _Bars(tuple(bars), labels, label_width, percent_width, text_size)


def _group(names: tuple[str, ...]) -> int:
    """How many actions stand apart from the rest: those of Procgen that press directions."""
    return len(_DIRECTIONS) if names[: len(_DIRECTIONS)] == _DIRECTIONS else 0


def _labels(names: tuple[str, ...], size: int, least: int, most: int) -> tuple[int, int, tuple[str, ...]]:
    """Size of labels, the width they take with a gap of 8 behind them, and the labels; too long ones are shortened."""
    widest = max(map(_line, names), key=_font(size).getlength)
    size = _fitted(widest, most - 8, size, _SMALLEST)[1]
    width = min(max(round(_font(size).getlength(widest) + 8.5), least), most)
    return size, width, tuple(_fitted(name, width - 8, size, size)[0] for name in names)


def _number_places(panel: _Panel) -> list[tuple[int, int, int]]:
    """Where the three numbers are: x, y and width."""
    left, right, line = panel.numbers
    third = (right - left) // 3
    return [(left + column * third, line, third - 10) for column in range(3)]


@lru_cache(maxsize=4)
def _single_blank(title: str, panel: _Panel) -> "Image":
    """What is the same in every picture."""
    from PIL import Image, ImageDraw

    picture = Image.new("RGB", SIZE, _PAPER)
    pen = ImageDraw.Draw(picture)
    left, right, _ = panel.numbers
    _write(pen, (left, 34), title, _INK, 24, right - left)
    _draw_still(pen, panel)
    return picture


@lru_cache(maxsize=4)
def _blank_together(title: str, labels: Sequence[str], panels: Sequence[_Panel]) -> "Image":
    from PIL import Image, ImageDraw

    lowest = max(bottom for *_, bottom in panels[0].bars.boxes)
    size = (panels[-1].frame[2] + _MARGIN, -(-(lowest + _MARGIN) // 16) * 16)
    picture = Image.new("RGB", size, _PAPER)
    pen = ImageDraw.Draw(picture)
    _write(pen, (_MARGIN, 34), title, _INK, 24, size[0] // 2)
    for label, panel in zip(labels, panels, strict=True):
        left, top, right, _ = panel.frame
        _write(pen, (left, top - 12), label, _INK, 20, right - left)
        _draw_still(pen, panel)
    return picture


# ---- text ------------------------------------------------------------------------------------------------------------


def _names(spec: EnvSpec) -> tuple[str, ...]:
    return tuple(spec.name_of(action) for action in range(spec.num_actions))


def _level_text(level: int, known: str) -> str:
    return f"level {level}, {known}" if known else f"level {level}"


def _write(
    pen: Any,
    place: tuple[int, int],
    text: str,
    colour: tuple[int, int, int],
    size: int,
    width: int,
    anchor: str = "ls",
) -> None:
    """Text of this size, or smaller if it is too wide."""
    line, size = _fitted(text, width, size)
    pen.text(place, line, colour, _font(size), anchor=anchor)


@lru_cache(maxsize=1024)
def _fitted(text: str, width: int, size: int, least: int = _SMALLEST) -> tuple[str, int]:
    """The text as one line and the size at which it fits; shortened if even the least is too wide."""
    line = _line(text)
    for fitting in range(size, least - 1, -1):
        if _font(fitting).getlength(line) <= width:
            return line, fitting
    while line and _font(least).getlength(f"{line}...") > width:
        line = line[:-1]
    return f"{line}...", least


def _line(text: str) -> str:
    return " ".join(text.split())


@lru_cache(maxsize=32)
def _font(size: int) -> Any:
    from PIL import ImageFont

    return ImageFont.load_default(size)
