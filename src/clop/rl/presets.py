"""Named settings: the protocols behind published numbers, and one that a CPU finishes in minutes."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from clop.errors import UsageError, unknown_name
from clop.rl.methods.base import Mode
from clop.rl.network import NetworkConfig
from clop.rl.ppo import PPOConfig


@dataclass(frozen=True)
class Preset:
    """What a run is unless told otherwise."""

    about: str
    mode: str
    levels: int
    steps: int
    ppo: PPOConfig
    network: NetworkConfig = field(default_factory=NetworkConfig)
    rollout_mode: Mode = "eval"
    eval_episodes: int = 1000


def _authors(num_envs: int) -> PPOConfig:
    """The CLOP authors' code: more envs than their text says, a falling learning rate, micro-batch losses added up."""
    return PPOConfig(
        num_envs=num_envs,
        micro_batch=2048,
        schedule="linear",
        advantage_norm="batch",
        advantage_std="unbiased",
        accumulate="sum",
    )


_AUTHORS_NETWORK = NetworkConfig(topology="split", norm="block")

PRESETS: Mapping[str, Preset] = MappingProxyType(
    {
        "procgen-easy": Preset(
            "OpenAI's Procgen agents, easy: 25 M steps on 200 levels", "easy", 200, 25_000_000, PPOConfig()
        ),
        "procgen-hard": Preset(
            "OpenAI's Procgen agents, hard: 200 M steps on 500 levels",
            "hard",
            500,
            200_000_000,
            PPOConfig(num_envs=256),
        ),
        "authors-easy": Preset(
            "the CLOP authors' code, easy: batch norm, split heads, 128 envs, falling learning rate",
            *("easy", 200, 25_000_000, _authors(128), _AUTHORS_NETWORK, "train"),
        ),
        "authors-hard": Preset(
            "the CLOP authors' code, hard: batch norm, split heads, 512 envs, falling learning rate",
            *("hard", 500, 200_000_000, _authors(512), _AUTHORS_NETWORK, "train"),
        ),
        "quick": Preset(
            "small rollouts and few levels, for a CPU in minutes; not a published protocol",
            *("easy", 50, 100_000, PPOConfig(num_envs=32, num_steps=64, minibatches=4)),
            eval_episodes=100,
        ),
    }
)


def find_preset(name: str) -> Preset:
    if name not in PRESETS:
        raise UsageError(unknown_name("preset", name, PRESETS))
    return PRESETS[name]
