"""What runs are called in reports. ``python tests/report/test_settings.py`` writes the defaults anew."""

import dataclasses
import json
from pathlib import Path

import pytest

from clop.report import settings
from clop.rl.config import PRESETS, TrainConfig
from clop.rl.methods import METHODS

FILE = Path(settings.__file__).with_name("settings.json")


def current():
    methods = {name: {f.name: f.default for f in dataclasses.fields(config)} for name, config in METHODS.items()}
    presets = {name: settings.flat(TrainConfig.preset(name, "bigfish").asdict()) for name in PRESETS}
    for values in presets.values():
        for name in ("game", "seed", "preset_name"):
            del values[name]
    return {"methods": methods, "presets": presets}


def config(preset="quick", game="bigfish", method="ppo", **changes):
    return TrainConfig.preset(preset, game, method, **changes).asdict()


def test_the_stored_defaults_are_those_of_the_code():
    """Fails for a method, a preset or a default that was changed and not stored: its runs would get a wrong name.

    One that is new need not be stored: its runs are called by all their settings until it is.
    """
    stored, now = json.loads(FILE.read_text()), current()
    known = {name: now["methods"].get(name) for name in stored["methods"]}
    assert stored == {"methods": known, "presets": now["presets"]}, (
        "write them anew: python tests/report/test_settings.py"
    )


@pytest.mark.parametrize(
    ("method", "name"),
    [
        ("ppo", "ppo"),
        ("clop", "clop"),
        ("clop(alpha=0.6)", "clop"),  # the paper's for bigfish, spelt out
        ("clop(alpha=0.3)", "clop(alpha=0.3)"),
        ("clop(local=false)", "clop(local=false)"),
        ("rad+clop(rollout_mode=eval)", "rad+clop(rollout_mode=eval)"),
        ("dropout(p=0.5)", "dropout(p=0.5)"),
    ],
)
def test_a_run_is_called_by_what_is_not_default(method, name):
    """Fails for a variant that would fill the column of the method itself."""
    assert settings.variant("bigfish", config(method=method)["methods"]) == name


def test_a_scale_names_what_is_not_of_its_preset():
    assert settings.scale_text(config()) == "quick: small, easy, 50 levels"
    changed = config(**{"ppo.learning_rate": 0.001, "network.width": 0.5, "num_levels": 10})
    assert settings.scale_text(changed) == "quick: small ×0.5, easy, 10 levels; ppo.learning_rate 0.001"


def test_runs_of_one_scale_may_differ_in_game_seed_method_and_steps():
    base = settings.scale_key(config())
    for same in (
        config(game="heist"),
        config(seed=3),
        config(method="clop"),
        config(total_timesteps=7),
        config(processes=2, threads=2, test_every=100, backend="envpool", **{"network.convolutions": "winograd"}),
    ):
        assert settings.scale_key(same) == base
    for other in (config(num_levels=10), config(**{"ppo.gamma": 0.9}), config("procgen-easy")):
        assert settings.scale_key(other) != base


def test_steps_divide_scales_where_the_learning_rate_falls_over_them():
    """Fails if an agent half way through a schedule is compared with one at the end of a shorter one."""
    keys = {settings.scale_key(config("authors-easy", total_timesteps=steps)) for steps in (10**6, 2 * 10**6)}
    assert len(keys) == 2


if __name__ == "__main__":
    FILE.write_text(json.dumps(current(), indent=1) + "\n")
