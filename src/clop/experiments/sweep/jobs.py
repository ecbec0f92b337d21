"""Job: one run of a sweep. Its id is made of all that decides its numbers, so the same run has it everywhere."""

import dataclasses
import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from clop.rl.config import TrainConfig
    from clop.vision.train import VisionConfig

_ID_LENGTH = 10
_NONE: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True)
class Job:
    """A run to be made: plain values, so that looking at a sweep needs neither torch nor the games."""

    id: str
    """Digest of the settings. Two jobs with one id are one run that ends at two totals."""
    name: str
    """Of the run's folder, to be read by people; ends in the id."""
    title: str
    kind: str
    """``agent`` or ``vision``"""
    total: int
    """Units at its end."""
    unit: str
    """``steps`` or ``images``"""
    config: dict[str, Any] = field(compare=False)

    def asdict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


def agent_job(config: "TrainConfig", varied: Mapping[str, Any] = _NONE) -> Job:
    """The job of training an agent; ``varied`` are settings that its title names."""
    from clop.rl.build import depends_on_total
    from clop.rl.envs.backends import GYMNASIUM, PROCGEN
    from clop.rl.games import is_procgen

    values = config.asdict()
    left_out = {"preset_name", "seed"}  # a name decides nothing; the seed is in the digest by itself
    if depends_on_total(config) is None:
        left_out.add("total_timesteps")
    if config.backend in ("auto", (PROCGEN if is_procgen(config.game) else GYMNASIUM)[0]):
        left_out.add("backend")
    decides = changed_values(config, left_out) | {"game": config.game, "seed": config.seed}
    words = [config.game, method_label(config)]
    return _job("agent", decides, words, varied, config.seed, config.env_steps, "steps", values)


def vision_job(config: "VisionConfig", varied: Mapping[str, Any] = _NONE) -> Job:
    """The job of training a classifier."""
    from clop.experiments.vision import label

    decides = changed_values(config, {"data", "seed", "test_every"}) | {"seed": config.seed}
    decides |= {name: getattr(config, name) for name in ("task", "network", "image_size", "epochs")}
    words = [config.task, label(config)]
    return _job("vision", decides, words, varied, config.seed, config.epochs, "epochs", config.asdict())


def _job(
    kind: str,
    decides: Mapping[str, Any],
    words: list[str],
    varied: Mapping[str, Any],
    seed: int,
    total: int,
    unit: str,
    config: dict[str, Any],
) -> Job:
    text = json.dumps({"kind": kind, **decides}, sort_keys=True, default=str)
    digest = hashlib.sha256(text.encode()).hexdigest()[:_ID_LENGTH]
    title = ", ".join([*words, *(f"{name} {value}" for name, value in varied.items()), f"seed {seed}"])
    # A folder's name does not name the total, which grows.
    named = [*words, *(f"{name}={value}" for name, value in varied.items() if name != "total_timesteps"), f"s{seed}"]
    readable = re.sub(r"-+", "-", re.sub(r"[^\w.+=]+", "-", "-".join(named)))
    return Job(digest, f"{readable}-{digest}", title, kind, total, unit, config)


def changed_values(config: Any, left_out: set[str]) -> dict[str, Any]:
    """The settings that are not their class's defaults, groups by dotted names.

    A setting that clop gets later, with a default that changes nothing, leaves the ids of earlier runs as they are.
    """
    found: dict[str, Any] = {}
    for entry in dataclasses.fields(config):
        value = getattr(config, entry.name)
        if entry.name in left_out:
            continue
        if entry.name == "methods":
            found["methods"] = list(value)  # their order counts
            for name, method in value.items():
                found |= {f"{name}.{inner}": inside for inner, inside in changed_values(method, set()).items()}
        elif dataclasses.is_dataclass(value):
            found |= {f"{entry.name}.{inner}": inside for inner, inside in changed_values(value, set()).items()}
        elif value != entry.default:
            found[entry.name] = value
    return found


def method_label(config: Any) -> str:
    """The methods with the settings that are not their defaults, such as ``rad+clop(alpha=0.3)``."""
    parts = []
    for name, method in config.methods.items():
        settings = ", ".join(f"{field}={value}" for field, value in changed_values(method, set()).items())
        parts.append(f"{name}({settings})" if settings else name)
    return "+".join(parts) or "ppo"
