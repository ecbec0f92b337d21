"""Videos of an agent at play: its frames, and beside them what it makes of them."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from clop.errors import UsageError
from clop.files import write_atomic
from clop.progress import Progress
from clop.rl.envs.levels import TrainLevels
from clop.rl.envs.vector import Episodes, VectorGames
from clop.rl.evaluate import Agent, Seeds, choose_actions

if TYPE_CHECKING:
    from PIL.Image import Image

SUFFIXES = (".mp4", ".gif")
BUTTONS = (
    *("left down", "left", "left up", "down", "nothing", "up", "right down", "right", "right up"),
    *("D", "A", "W", "S", "Q", "E"),
)
"""What the 15 actions press; the letters are the games' special buttons, such as fire."""
SIZE = (880, 544)
"""Width and height of a video; multiples of 16, as encoders like it."""

_MARGIN, _FRAME = 16, 512  # pixels; a game's pixel becomes 8 x 8
_LEFT, _RIGHT = 2 * _MARGIN + _FRAME, SIZE[0] - _MARGIN  # of the panel
_FIRST_BAR, _BAR_STEP, _BAR_HEIGHT, _GROUP_GAP = 206, 21, 13, 11
_BAR_LEFT, _BAR_RIGHT = _LEFT + 88, _RIGHT - 40
_TRACE = (_LEFT, 134, _RIGHT, 174)  # box of the value's course
_TRACE_STEPS = (_RIGHT - _LEFT) // 2 - 4
_PAPER, _INK, _FAINT, _GROOVE = (250, 250, 248), (32, 32, 32), (120, 120, 120), (228, 228, 226)
_BAR, _CHOSEN = (138, 170, 208), (214, 108, 46)
_DPAD = 9  # actions that press directions come first


@dataclass(frozen=True)
class WatchConfig:
    """Which episodes a video shows."""

    levels: Literal["train", "test"] = "test"
    """``train`` for levels seen in training, ``test`` for unseen ones, as in the protocol clop-v1."""
    episodes: int = 4
    greedy: bool = False
    """Whether to take the most probable action instead of a sampled one."""
    seed: int = 0
    fps: int = 15
    """Steps of the game in a second; 15 is what the games were made for."""

    def __post_init__(self) -> None:
        if min(self.episodes, self.fps) < 1:
            raise UsageError(f"episodes and fps must be at least 1, got {self.episodes} and {self.fps}")


class Moment(NamedTuple):
    """One frame, and what the agent thought and did."""

    frame: NDArray[np.uint8]
    """(64, 64, 3)"""
    probabilities: NDArray[np.float32]
    """(15,) of the actions"""
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
    trained: TrainLevels,
    path: Path,
    config: WatchConfig = WatchConfig(),  # noqa: B008 - frozen
    *,
    backend: str = "auto",
    progress: Progress | None = None,
) -> Episodes:
    """Write a video of whole episodes, and tell how they went.

    Args:
        agent: Who plays, in evaluation mode.
        trained: The game, and the levels that the agent was trained on.
        path: Where to; the suffix decides between mp4 and gif.
        config: Which episodes.
        backend: See :class:`~clop.rl.envs.vector.VectorGames`.
        progress: Is told of each episode.
    """
    check_suffix(path)
    if agent.uses_batch_statistics:
        raise UsageError(
            "batch norm with the statistics of the frames at hand needs many games at once, and a video shows one"
        )
    seeds = Seeds.of(config.seed, config.levels)
    start, number = trained.level_range(config.levels)
    title = trained.game if trained.mode == "easy" else f"{trained.game}, {trained.mode}"
    known = "seen in training" if config.levels == "train" else "unseen"
    played: list[Episodes] = []
    with (
        agent.playing(seeds.noise),
        VectorGames(
            trained.game,
            1,
            mode=trained.mode,
            start_level=start,
            num_levels=number,
            rand_seed=seeds.games,
            backend=backend,
        ) as games,
    ):
        moments = _play(agent, games, config, torch.Generator().manual_seed(seeds.actions), played, progress)
        pictures = ((draw(moment, title, known), bool(moment.outcome)) for moment in moments)
        write_video(pictures, path, config.fps)
    return Episodes.joined(played)


def _play(
    agent: Agent,
    games: VectorGames,
    config: WatchConfig,
    dice: torch.Generator,
    played: list[Episodes],
    progress: Progress | None,
) -> Iterator[Moment]:
    values: tuple[float, ...] = ()
    total = 0.0
    while len(played) < config.episodes:
        frames = games.observe()
        output = agent(torch.from_numpy(frames.obs))
        action = choose_actions(output, config.greedy, dice)
        values += (float(output.known_value[0]),)
        probabilities = output.known_logits[0].softmax(-1).numpy()
        level, count = int(frames.level_seeds[0]), int(frames.episode_steps[0])
        moment = Moment(frames.obs[0], probabilities, int(action[0]), values, level, count, total)
        yield moment
        step = games.step(action.numpy())
        total += float(step.rewards[0])
        if step.dones[0]:
            # The frame after the last action is never shown: the games give the next episode's first one instead.
            outcome = "solved" if step.finished.completed[0] else "ended"
            yield moment._replace(step=count + 1, total=total, outcome=outcome)
            values, total = (), 0.0
            played.append(step.finished)
            if progress is not None:
                progress.step(1, **{"return": float(step.finished.returns[0])})


def draw(moment: Moment, title: str, known: str) -> "Image":
    """A picture of :data:`SIZE`.

    Args:
        moment: What to show.
        title: The game.
        known: Whether the agent has seen the level in training, in words.
    """
    from PIL import Image, ImageDraw

    picture = _blank(title).copy()
    frame = Image.fromarray(moment.frame).resize((_FRAME, _FRAME), Image.Resampling.NEAREST)
    picture.paste(frame, (_MARGIN, _MARGIN))
    pen = ImageDraw.Draw(picture)
    pen.text((_LEFT, 56), f"level {moment.level}, {known}", _FAINT, _font(15), anchor="ls")
    third = (_RIGHT - _LEFT) // 3
    numbers = (f"{moment.step}", f"{moment.total:.4g}", f"{moment.values[-1]:.2f}")
    for column, number in enumerate(numbers):
        pen.text((_LEFT + column * third, 118), number, _INK, _font(24), anchor="ls")
    _draw_trace(pen, moment.values)
    for action, probability in enumerate(moment.probabilities.tolist()):
        top, chosen = _bar_top(action), action == moment.action
        colour = _CHOSEN if chosen else _BAR
        right = _BAR_LEFT + round(probability * (_BAR_RIGHT - _BAR_LEFT))
        if right > _BAR_LEFT:
            pen.rectangle((_BAR_LEFT, top, right, top + _BAR_HEIGHT), colour)
        middle = top + _BAR_HEIGHT / 2
        pen.text((_RIGHT, middle), f"{probability:.0%}", _CHOSEN if chosen else _FAINT, _font(13), anchor="rm")
        if chosen:
            pen.rectangle((_LEFT, top - 3, _BAR_LEFT - 1, top + _BAR_HEIGHT + 3), _PAPER)
            pen.text((_BAR_LEFT - 8, middle), BUTTONS[action], _CHOSEN, _font(13), anchor="rm")
    if moment.outcome:
        bottom = _MARGIN + _FRAME - 1
        pen.rectangle((_MARGIN, bottom - 47, _MARGIN + _FRAME - 1, bottom), _INK)
        text = f"{moment.outcome} after {moment.step} steps, return {moment.total:.4g}"
        pen.text((_MARGIN + _FRAME // 2, bottom - 23), text, _PAPER, _font(20), anchor="mm")
    return picture


def _draw_trace(pen: Any, values: tuple[float, ...]) -> None:
    """The value's course in the last steps, from right to left into the past."""
    _, top, right, bottom = _TRACE
    recent = np.array(values[-_TRACE_STEPS:])
    low, high = min(recent.min(), 0.0), max(recent.max(), 1.0)
    y = bottom - 2 - (recent - low) / (high - low) * (bottom - top - 4)
    x = right - 4 - 2.0 * np.arange(len(recent))[::-1]
    if len(recent) > 1:
        pen.line(list(zip(x.tolist(), y.tolist(), strict=True)), _BAR, 2)
    pen.ellipse((x[-1] - 3, y[-1] - 3, x[-1] + 3, y[-1] + 3), _CHOSEN)


@lru_cache(maxsize=4)
def _blank(title: str) -> "Image":
    """What is the same in every picture."""
    from PIL import Image, ImageDraw

    picture = Image.new("RGB", SIZE, _PAPER)
    pen = ImageDraw.Draw(picture)
    pen.text((_LEFT, 34), title, _INK, _font(24), anchor="ls")
    third = (_RIGHT - _LEFT) // 3
    for column, name in enumerate(("step", "return", "value")):
        pen.text((_LEFT + column * third, 90), name, _FAINT, _font(13), anchor="ls")
    pen.rectangle(_TRACE, _GROOVE)
    pen.text((_LEFT, _FIRST_BAR - 10), "action probabilities", _FAINT, _font(13), anchor="ls")
    for action, name in enumerate(BUTTONS):
        top = _bar_top(action)
        pen.rectangle((_BAR_LEFT, top, _BAR_RIGHT, top + _BAR_HEIGHT), _GROOVE)
        pen.text((_BAR_LEFT - 8, top + _BAR_HEIGHT / 2), name, _INK, _font(13), anchor="rm")
    return picture


def _bar_top(action: int) -> int:
    return _FIRST_BAR + action * _BAR_STEP + (_GROUP_GAP if action >= _DPAD else 0)


@lru_cache(maxsize=8)
def _font(size: int) -> Any:
    from PIL import ImageFont

    return ImageFont.load_default(size)


# ---- files -----------------------------------------------------------------------------------------------------------


def check_suffix(path: Path) -> str:
    """``.mp4`` or ``.gif``, if it is one and what it needs is installed."""
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise UsageError(f"cannot write a video as {suffix or 'a file without a suffix'!r}; expected .mp4 or .gif")
    if find_spec("PIL") is None:
        raise UsageError('videos need pillow, which is not installed: pip install "clop[picture]"')
    if suffix == ".mp4" and find_spec("av") is None:
        raise UsageError("mp4 needs av, which is not installed: pip install av; or write a .gif")
    return suffix


def write_video(pictures: Iterable[tuple["Image", bool]], path: Path, fps: int) -> None:
    """Write pictures as they come, the whole file or none.

    Args:
        pictures: One for each step, and whether it stays for a second.
        path: Ends in .mp4 or .gif.
        fps: Pictures in a second. A gif counts in hundredths of seconds and may be a little off.
    """
    write = _write_mp4 if check_suffix(path) == ".mp4" else _write_gif
    write_atomic(path, lambda draft: write(pictures, draft, fps))


def _write_mp4(pictures: Iterable[tuple["Image", bool]], path: Path, fps: int) -> None:
    import av

    with av.open(str(path), "w", format="mp4", options={"movflags": "+faststart"}) as container:
        stream = container.add_stream("libx264", rate=fps, options={"crf": "15", "preset": "veryfast"})
        stream.pix_fmt = "yuv420p"
        stream.width, stream.height = SIZE
        for picture, stays in pictures:
            for _ in range(fps if stays else 1):
                container.mux(stream.encode(av.VideoFrame.from_ndarray(np.asarray(picture), format="rgb24")))
        container.mux(stream.encode())


def _write_gif(pictures: Iterable[tuple["Image", bool]], path: Path, fps: int) -> None:
    """Picture by picture, the part that changed. Pillow's own way keeps all of them in memory, half a megabyte each."""
    from PIL import GifImagePlugin, Image, ImageChops

    duration = 10 * max(2, round(100 / fps))  # milliseconds; browsers slow down what is shorter than 20
    before: Image.Image | None = None
    with path.open("wb") as file:
        for picture, stays in pictures:
            box = (0, 0, *picture.size)
            if before is not None:
                box = ImageChops.difference(picture, before).getbbox() or (0, 0, 1, 1)
            part = picture.crop(box).quantize(256, Image.Quantize.FASTOCTREE)
            if before is None:
                file.writelines(GifImagePlugin.getheader(part, info={"loop": 0})[0])
            settings = {"duration": 1000 if stays else duration, "disposal": 1, "include_color_table": True}
            file.writelines(GifImagePlugin.getdata(part, box[:2], **settings))
            before = picture
        file.write(b";")
