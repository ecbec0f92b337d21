"""Videos of agents at play: their frames, and beside them what they make of them."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch

from clop.errors import UsageError
from clop.progress import Progress
from clop.rl.agent import Agent, choose_actions
from clop.rl.envs.levels import LevelSet
from clop.rl.envs.spec import EnvSpec, Episodes
from clop.rl.envs.vector import VectorGames
from clop.rl.evaluate import Seeds
from clop.rl.games import INT32_MAX
from clop.rl.pictures.layout import TOGETHER
from clop.rl.pictures.moment import Moment, Scene, draw, draw_together
from clop.rl.saliency import HEAT_TEXTS, Target, saliency
from clop.rl.video import check_suffix, write_video

if TYPE_CHECKING:
    from PIL.Image import Image

_TARGETS: dict[str, Target] = {"policy": "logit", "value": "value"}


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
    saliency: Literal["policy", "value"] | None = None
    """Whose heat to show beside the frame: what raises the logit of the chosen action, or the value."""

    def __post_init__(self) -> None:
        if min(self.episodes, self.fps) < 1:
            raise UsageError(f"episodes and fps must be at least 1, got {self.episodes} and {self.fps}")

    def scene(self, trained: LevelSet, spec: EnvSpec) -> Scene:
        """What all pictures of the video have in common."""
        known = "" if trained.num_levels == 0 else "seen in training" if self.split == "train" else "unseen"
        return Scene(trained.title, known, spec, HEAT_TEXTS[_TARGETS[self.saliency]] if self.saliency else "")


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
    scene = config.scene(trained, agent.spec)
    played: list[Episodes] = []

    def pictures(games: VectorGames) -> Iterator[tuple["Image", bool]]:
        while len(played) < config.episodes:
            for moment in _episode(agent, games, config, action_rng, played, progress):
                yield draw(moment, scene), bool(moment.outcome)

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
    seeds = Seeds.of(config.seed, config.split)
    action_rngs = {label: torch.Generator().manual_seed(seeds.actions) for label in agents}
    played: dict[str, list[Episodes]] = {label: [] for label in agents}
    scene = config.scene(trained, next(iter(agents.values())).spec)

    def pictures() -> Iterator[tuple["Image", bool]]:
        for level in draw_levels(trained, config):
            with ExitStack() as stack:
                players = {}
                for label, agent in agents.items():
                    games = stack.enter_context(trained.single(level).open(1, seeds.games, backend))
                    rng, ended = action_rngs[label], played[label]
                    players[label] = _episode(agent, games, config, rng, ended, progress)
                for moments in _in_step(players):
                    last = all(moment.outcome for moment in moments.values())
                    yield draw_together(moments, scene), last

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


def _episode(
    agent: Agent,
    games: VectorGames,
    config: WatchConfig,
    action_rng: torch.Generator,
    played: list[Episodes],
    progress: Progress | None,
) -> Iterator[Moment]:
    """One moment for each step and one for the end; by then ``played`` has the episode."""
    values: tuple[float, ...] = ()
    total = 0.0
    while True:
        frames = games.observe()
        obs = torch.from_numpy(frames.obs)
        output = agent(obs)
        action = choose_actions(output, config.greedy, action_rng)
        values += (float(output.known_value[0]),)
        probabilities = output.known_logits[0].softmax(-1).numpy()
        level, count = int(frames.level_seeds[0]), int(frames.episode_steps[0])
        heat = None
        if config.saliency is not None:
            heat = saliency(agent, obs, _TARGETS[config.saliency], action)[0].numpy()
        moment = Moment(frames.obs[0], probabilities, int(action[0]), values, level, count, total, heat=heat)
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
