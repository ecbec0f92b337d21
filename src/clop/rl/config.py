"""TrainConfig: one training run, and the presets, which are changes over its defaults."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, NamedTuple

from clop.errors import UsageError, unknown_name
from clop.fields import checked, whole
from clop.rl import methods
from clop.rl.encoders import find_encoder
from clop.rl.envs.levels import LevelSet
from clop.rl.games import is_procgen
from clop.rl.methods import METHODS, MethodConfig
from clop.rl.methods.base import Settings
from clop.rl.settings import Mode, NetworkConfig, PPOConfig
from clop.seeds import check_seed


@dataclass(frozen=True)
class TrainConfig:
    """One training run: everything that decides its numbers. The defaults are OpenAI's for easy Procgen."""

    game: str
    """One of the 16 games of Procgen, ``gymnasium:ID``, or ``module:function`` for a game of one's own."""
    wrappers: tuple[str, ...] = ()
    """Gymnasium wrappers as ``module:Class``, the innermost first."""
    preset_name: str = "procgen-easy"
    """The preset that the settings come from."""
    distribution_mode: str = "easy"
    """Difficulty of Procgen: ``easy`` or ``hard``; ``none`` for other games."""
    start_level: int = 0
    """First training level."""
    num_levels: int = 200
    """Number of training levels; 0 stands for all."""
    total_timesteps: int = 25_000_000
    """Env steps in all; the last iteration may go beyond."""
    seed: int = 0
    """Decides initial weights, levels, actions and all noise."""
    processes: int = 1
    """Processes that share the games; their number decides who draws what."""
    threads: int = 1
    """Threads of each process; sums over more threads round differently."""
    backend: str = "auto"
    """Program that plays the games; ``auto`` for the best that is installed."""
    network: NetworkConfig = field(default_factory=NetworkConfig)
    ppo: PPOConfig = field(default_factory=PPOConfig)
    rollout_mode: Mode = "eval"
    """Mode of the network while acting, unless a method asks for one."""
    methods: Mapping[str, MethodConfig] = field(default_factory=dict)
    """Settings by name, in the order in which the methods are composed; none of them is plain PPO."""
    test_every: int = 0
    """Env steps between tests on unseen levels while training; 0 for none. They do not change the training."""
    test_episodes: int = 32
    """Episodes of each test while training, by the protocol clop-v1."""
    eval_episodes: int = 1000
    """Episodes of each of the two evaluations at the end, by the protocol clop-v1."""

    def __post_init__(self) -> None:
        _ = self.levels  # checks the game and its levels
        find_encoder(self.network.encoder)
        check_seed(self.seed)
        for name in ("total_timesteps", "test_episodes", "eval_episodes", "threads"):
            if getattr(self, name) < 1:
                raise UsageError(f"{name} must be at least 1, got {getattr(self, name)}")
        if self.test_every < 0:
            raise UsageError(f"test_every must not be negative, got {self.test_every}; 0 stands for no tests")
        if self.processes < 1 or self.ppo.num_envs % self.processes:
            raise UsageError(f"processes={self.processes} does not divide num_envs={self.ppo.num_envs}")

    @classmethod
    def preset(cls, name: str, game: str, method: str = "ppo", **changes: Any) -> "TrainConfig":
        """A preset for a game, with some settings changed.

        Args:
            name: One of :data:`PRESETS`.
            game: See :class:`TrainConfig`.
            method: Names joined with ``+``, each with its settings in brackets: ``rad+clop(alpha=0.3)``.
            changes: Settings by name. Those of a group are a mapping, ``ppo={"num_envs": 32}``, or have dotted names,
                ``**{"ppo.num_envs": 32}``; a group may also be given whole, ``ppo=PPOConfig(…)``.
        """
        settings = dict(find_preset(name).changes)
        if not is_procgen(game):
            settings["distribution_mode"] = "none"
        chosen = methods.parse(method)
        return cls(game=game, preset_name=name, **_merged(chosen, settings, changes))

    def changed(self, *, method: str | None = None, **changes: Any) -> "TrainConfig":
        """The same run with some settings changed, named as in :meth:`preset`; another method has its own defaults."""
        ours = {name: getattr(self, name) for name in ("network", "ppo")}
        chosen = self.methods if method is None else methods.parse(method)
        return replace(self, **_merged(chosen, ours, changes))

    @property
    def levels(self) -> LevelSet:
        """What the agent is to learn on."""
        return LevelSet(self.game, self.distribution_mode, self.start_level, self.num_levels, self.wrappers)

    @property
    def method(self) -> str:
        """The methods' names joined with ``+``."""
        return "+".join(self.methods) or "ppo"

    @property
    def iterations(self) -> int:
        return -(-self.total_timesteps // self.ppo.batch_size)

    @property
    def env_steps(self) -> int:
        """Env steps that are really made: whole iterations."""
        return self.iterations * self.ppo.batch_size

    @property
    def settings(self) -> Settings:
        """What is to be built, before its methods have edited it."""
        return Settings(self.levels, self.ppo, self.network, self.rollout_mode, self.backend)

    def asdict(self) -> dict[str, Any]:
        """Plain names and numbers, as written to a file."""
        return dataclasses.asdict(self) | {
            "wrappers": list(self.wrappers),
            "methods": {name: dataclasses.asdict(config) for name, config in self.methods.items()},  # type: ignore[call-overload]
        }

    @classmethod
    def fromdict(cls, values: Mapping[str, Any]) -> "TrainConfig":
        """The inverse of :meth:`asdict`."""
        values = dict(values)
        values["wrappers"] = tuple(values["wrappers"])
        values["network"] = NetworkConfig(**values["network"])
        values["ppo"] = PPOConfig(**values["ppo"])
        values["methods"] = {
            name: METHODS[name](**whole(METHODS[name], given)) for name, given in values["methods"].items()
        }
        return cls(**values)


def _merged(
    chosen: Mapping[str, MethodConfig], settings: Mapping[str, Any], changes: Mapping[str, Any]
) -> dict[str, Any]:
    """Keyword arguments for :class:`TrainConfig`: settings, then changes, groups field by field."""
    plain: dict[str, Any] = {}
    groups: dict[str, Any] = {"network": NetworkConfig(), "ppo": PPOConfig(), **chosen}
    fields: dict[str, dict[str, Any]] = {}
    for name, value in [*settings.items(), *changes.items()]:
        group, dot, inner = name.partition(".")
        if group in groups and (dot or isinstance(value, Mapping)):
            fields.setdefault(group, {}).update({inner: value} if dot else value)
        elif name in groups:
            if not isinstance(value, kind := type(groups[name])):
                raise UsageError(f"{name}: expected {kind.__name__} or settings by name, got {value!r}")
            groups[name] = value
            fields.pop(name, None)  # given whole, it keeps nothing of the preset's
        elif group in METHODS:
            which = f"{name} is a setting of {group}, which" if dot else group
            raise UsageError(f"{which} is not active here; add it with method={group!r}")
        elif dot:
            raise UsageError(unknown_name("group of settings", group, groups))
        elif name == "methods":
            raise UsageError('methods are chosen by their names: method="rad+clop(alpha=0.3)"')
        else:
            plain[name] = value
    for group, values in fields.items():
        groups[group] = replace(groups[group], **checked(type(groups[group]), values, group))
    network, ppo = groups.pop("network"), groups.pop("ppo")
    return checked(TrainConfig, plain) | {"network": network, "ppo": ppo, "methods": groups}


class Preset(NamedTuple):
    """A name for some changes over the defaults."""

    about: str
    changes: Mapping[str, Any]


def _authors(num_envs: int) -> dict[str, Any]:
    """The CLOP authors' code: more envs than their text says, a falling learning rate, micro-batch losses added up."""
    return {
        "network.topology": "split",
        "network.norm": "block",
        "rollout_mode": "train",
        "ppo.num_envs": num_envs,
        "ppo.micro_batch": 2048,
        "ppo.schedule": "linear",
        "ppo.advantage_norm": "batch",
        "ppo.advantage_std": "unbiased",
        "ppo.accumulate": "sum",
    }


_HARD = {"distribution_mode": "hard", "num_levels": 500, "total_timesteps": 200_000_000}

PRESETS: Mapping[str, Preset] = MappingProxyType(
    {
        "procgen-easy": Preset("OpenAI's Procgen agents, easy: 25 M steps on 200 levels", {}),
        "procgen-hard": Preset(
            "OpenAI's Procgen agents, hard: 200 M steps on 500 levels", {**_HARD, "ppo.num_envs": 256}
        ),
        "authors-easy": Preset(
            "the CLOP authors' code, easy: batch norm, split heads, 128 envs, falling learning rate", _authors(128)
        ),
        "authors-hard": Preset(
            "the CLOP authors' code, hard: batch norm, split heads, 512 envs, falling learning rate",
            {**_HARD, **_authors(512)},
        ),
        "quick": Preset(
            "the small encoder, small rollouts and few levels, for a CPU in minutes; not a published protocol",
            {
                "num_levels": 50,
                "total_timesteps": 500_000,
                "eval_episodes": 256,
                "network.encoder": "small",
                "ppo.num_steps": 64,
                "ppo.gamma": 0.99,
            },
        ),
    }
)


def find_preset(name: str) -> Preset:
    if name not in PRESETS:
        raise UsageError(unknown_name("preset", name, PRESETS))
    return PRESETS[name]
