"""What runs are called: the method with the settings that are not its own, and the scale with those not of its preset.

The defaults are in ``settings.json``, since reports import neither methods nor presets, which need torch.
"""

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from clop.rl.games import GAMES, paper_alpha

_FILE = Path(__file__).with_name("settings.json")

NOT_SCALE = (
    *("game", "seed", "methods", "preset_name"),
    *("processes", "threads", "backend", "test_every", "test_episodes", "eval_episodes"),
    "network.convolutions",
)
"""Settings that do not divide runs into scales: what is compared, and what changes no weight but by rounding and by
who draws which number."""


@cache
def known() -> dict[str, Any]:
    """Defaults of the methods and settings of the presets, by name."""
    return json.loads(_FILE.read_text())


def variant(game: str, methods: Mapping[str, Mapping[str, Any]]) -> str:
    """``ppo``, ``clop`` or ``rad+clop(alpha=0.3)``: settings that are defaults are not mentioned.

    An alpha that is the paper's for the game is the default spelt out.
    """
    return "+".join(_call(game, name, settings) for name, settings in methods.items()) or "ppo"


def _call(game: str, name: str, settings: Mapping[str, Any]) -> str:
    defaults = known()["methods"].get(name, {})
    changed = {key: value for key, value in settings.items() if key not in defaults or defaults[key] != value}
    if "alpha" in changed and defaults.get("alpha", 0) is None and changed["alpha"] == paper_alpha(game):
        del changed["alpha"]
    text = ", ".join(f"{key}={word(value)}" for key, value in changed.items())
    return f"{name}({text})" if text else name


def word(value: Any) -> str:
    if value is None:
        return "auto"
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)


def scale_key(config: Mapping[str, Any]) -> str:
    """What two runs must have in common for their returns to be compared, but game, steps and method."""
    kept = known()["presets"]["procgen-easy"] | flat(config)  # a setting that came later had its default before
    kept = {name: value for name, value in kept.items() if name not in NOT_SCALE}
    if config["ppo"]["schedule"] == "constant":  # else the learning rate depends on how long the run was to be
        kept.pop("total_timesteps")
    return json.dumps(kept, sort_keys=True)


def scale_text(config: Mapping[str, Any]) -> str:
    """``procgen-easy: impala, easy, 200 levels; ppo.num_steps 64``."""
    network, preset = config["network"], config["preset_name"]
    encoder = network["encoder"] + (f" ×{network['width']:g}" if network["width"] != 1 else "")
    mode = f"{config['distribution_mode']}, " if config["game"] in GAMES else ""
    levels = f"{config['num_levels']} levels" if config["num_levels"] else "all levels"
    text = f"{preset}: {encoder}, {mode}{levels}"
    usual = known()["presets"].get(preset)
    shown = {"num_levels", "distribution_mode", "network.encoder", "network.width", "total_timesteps", *NOT_SCALE}
    if usual is not None:
        changed = {k: v for k, v in flat(config).items() if k.split(".")[0] not in shown and k not in shown}
        changes = [f"{key} {word(value)}" for key, value in changed.items() if usual.get(key) != value]
        if changes:
            text += "; " + ", ".join(changes)
    return text


def flat(config: Mapping[str, Any]) -> dict[str, Any]:
    """Settings by dotted name, without those of methods."""
    plain = {name: value for name, value in config.items() if not isinstance(value, Mapping)}
    for group in ("network", "ppo"):
        plain |= {f"{group}.{name}": value for name, value in config[group].items()}
    return plain
