"""TrainConfig: the presets, how settings are named and changed, and what is refused."""

import json

import pytest

from clop.errors import UsageError
from clop.rl.config import PRESETS, TrainConfig
from clop.rl.methods.clop import Clop
from clop.rl.methods.rad import Rad
from clop.rl.settings import NetworkConfig, PPOConfig

# ---- presets ---------------------------------------------------------------------------------------------------------

AUTHORS_PPO = {
    "micro_batch": 2048,  # decides the sum
    "schedule": "linear",
    "advantage_norm": "batch",
    "advantage_std": "unbiased",
    "accumulate": "sum",
}
AUTHORS_NETWORK = NetworkConfig(topology="split", norm="block")
PUBLISHED = {
    "procgen-easy": ("easy", 200, 25_000_000, PPOConfig(), NetworkConfig(), "eval"),
    "procgen-hard": ("hard", 500, 200_000_000, PPOConfig(num_envs=256), NetworkConfig(), "eval"),
    "authors-easy": ("easy", 200, 25_000_000, PPOConfig(num_envs=128, **AUTHORS_PPO), AUTHORS_NETWORK, "train"),
    "authors-hard": ("hard", 500, 200_000_000, PPOConfig(num_envs=512, **AUTHORS_PPO), AUTHORS_NETWORK, "train"),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_presets_are_the_published_settings(name):
    """OpenAI's and the CLOP authors', easy and hard, to the last field."""
    mode, levels, steps, ppo, network, rollout_mode = PUBLISHED[name]
    assert TrainConfig.preset(name, "bigfish") == TrainConfig(
        "bigfish",
        preset_name=name,
        distribution_mode=mode,
        start_level=0,
        num_levels=levels,
        total_timesteps=steps,
        ppo=ppo,
        network=network,
        rollout_mode=rollout_mode,
        eval_episodes=1000,
        seed=0,
    )


def test_minibatches_of_the_presets_have_the_published_sizes():
    configs = {name: TrainConfig.preset(name, "bigfish") for name in PUBLISHED}
    sizes = {name: config.ppo.batch_size // config.ppo.num_minibatches for name, config in configs.items()}
    assert sizes == {"procgen-easy": 2048, "procgen-hard": 8192, "authors-easy": 4096, "authors-hard": 16_384}
    assert {(config.ppo.num_steps, config.ppo.update_epochs) for config in configs.values()} == {(256, 3)}


def test_a_config_without_a_preset_is_procgen_easy():
    assert TrainConfig("bigfish") == TrainConfig.preset("procgen-easy", "bigfish")


def test_the_quick_preset_is_small_and_acts_in_evaluation_mode():
    quick = TrainConfig.preset("quick", "bigfish")
    assert quick.network == NetworkConfig(encoder="small")
    assert quick.rollout_mode == "eval"
    assert quick.total_timesteps <= 500_000
    assert set(PRESETS) == {*PUBLISHED, "quick"}


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_is_for_any_game(name):
    """Fails when a preset for hard Procgen cannot be used for a game without such a mode."""
    config = TrainConfig.preset(name, "gymnasium:CartPole-v1")
    assert config.distribution_mode == "none"
    assert config.num_levels == TrainConfig.preset(name, "maze").num_levels


# ---- how settings are named ------------------------------------------------------------------------------------------


def made(way, preset, method, changes):
    """With the changes from the start, or afterwards."""
    if way == "preset":
        return TrainConfig.preset(preset, "maze", method, **changes)
    return TrainConfig.preset(preset, "maze", method).changed(**changes)


@pytest.mark.parametrize(
    "changes",
    [
        {"ppo.num_envs": 32, "ppo.gamma": 0.9, "network.width": 2, "seed": 5},
        {"ppo": {"num_envs": 32, "gamma": 0.9}, "network": {"width": 2}, "seed": 5},
        {"ppo": PPOConfig(num_envs=32, gamma=0.9), "network": NetworkConfig(width=2), "seed": 5},
        {"ppo": PPOConfig(num_envs=32), "ppo.gamma": 0.9, "network": {"width": 2}, "seed": 5},
        {"ppo": {"num_envs": 32}, "ppo.gamma": 0.9, "network": {"width": 2.0}, "seed": 5.0},
    ],
    ids=["dotted", "mapping", "whole", "whole and dotted", "mapping and dotted"],
)
@pytest.mark.parametrize("way", ["preset", "changed"])
def test_the_ways_to_name_a_setting_mean_the_same(changes, way):
    config = made(way, "procgen-hard", "ppo", changes)
    assert config.ppo == PPOConfig(num_envs=32, gamma=0.9)
    assert config.network == NetworkConfig(width=2)
    assert (config.seed, config.num_levels, config.distribution_mode) == (5, 500, "hard")


def test_a_group_that_is_given_whole_keeps_nothing_of_the_presets():
    """Fails when the preset's 512 envs win over the group's own number, as they once did."""
    config = TrainConfig.preset("authors-hard", "maze", ppo=PPOConfig(num_envs=8), network=NetworkConfig())
    assert (config.ppo, config.network) == (PPOConfig(num_envs=8), NetworkConfig())


def test_a_part_of_a_group_leaves_the_rest_to_the_preset():
    config = TrainConfig.preset("authors-hard", "maze", ppo={"num_envs": 8}, **{"network.norm": "all"})
    assert config.ppo == PPOConfig(num_envs=8, **AUTHORS_PPO)
    assert config.network == NetworkConfig(topology="split", norm="all")


def test_methods_bring_their_settings_in_brackets_or_by_name():
    by_brackets = TrainConfig.preset("quick", "maze", "rad(aug=flip)+clop(alpha=0.3)")
    by_name = TrainConfig.preset("quick", "maze", "rad+clop", rad={"aug": "flip"}, **{"clop.alpha": 0.3})
    assert by_brackets == by_name
    assert list(by_name.methods.items()) == [("rad", Rad(aug="flip")), ("clop", Clop(alpha=0.3))]
    assert by_name.method == "rad+clop"
    assert TrainConfig.preset("quick", "maze", "clop", clop=Clop(alpha=0.3)).methods == {"clop": Clop(alpha=0.3)}


def test_a_changed_run_keeps_what_was_not_named_and_the_first_stays_as_it_is():
    config = TrainConfig.preset("quick", "maze", "clop(alpha=0.3)+rad", seed=4)
    changed = config.changed(**{"clop.alpha": 0.6, "ppo.num_envs": 8})
    assert changed.methods == {"clop": Clop(alpha=0.6), "rad": Rad()}
    assert (changed.ppo.num_envs, changed.seed, changed.network) == (8, 4, config.network)
    assert (config.methods["clop"], config.ppo.num_envs) == (Clop(alpha=0.3), 64)
    assert config.changed() == config


def test_the_method_of_a_run_can_be_changed():
    """Fails when the change is swallowed and the run stays as it was."""
    config = TrainConfig.preset("quick", "maze", "clop(alpha=0.3)", seed=4)
    assert config.changed(method="rad(aug=flip)").methods == {"rad": Rad(aug="flip")}
    assert config.changed(method="ppo").methods == {}
    assert config.changed(method="clop+rad", **{"rad.aug": "crop"}).methods == {"clop": Clop(), "rad": Rad(aug="crop")}


# ---- what is refused -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"num_level": 3}, r"unknown setting 'num_level'; did you mean 'num_levels'\?"),
        ({"ppo.num_env": 3}, r"unknown setting 'ppo\.num_env'; did you mean 'ppo\.num_envs'\?"),
        ({"ppo": {"num_env": 3}}, r"unknown setting 'ppo\.num_env'; did you mean 'ppo\.num_envs'\?"),
        ({"pp.num_envs": 3}, r"unknown group of settings 'pp'; did you mean 'ppo'\?"),
        ({"clop.alpa": 0.3}, r"unknown setting 'clop\.alpa'; did you mean 'clop\.alpha'\?"),
        ({"network.encoder": "smal"}, r"unknown network\.encoder 'smal'; did you mean 'small'\?"),
        ({"network": NetworkConfig(encoder="smal")}, r"unknown network\.encoder 'smal'; did you mean 'small'\?"),
        ({"network.topology": "shred"}, r"unknown network\.topology 'shred'; did you mean 'shared'\?"),
        ({"rollout_mode": "trian"}, r"unknown rollout_mode 'trian'; did you mean 'train'\?"),
        ({"rad.alpha": 0.3}, r"rad\.alpha is a setting of rad, which is not active here; add it with method='rad'"),
        ({"rad": {"aug": "crop"}}, r"^rad is not active here; add it with method='rad'$"),
        ({"rad": Rad()}, r"^rad is not active here; add it with method='rad'$"),
        ({"ppo": 3}, "ppo: expected PPOConfig or settings by name, got 3"),
        ({"clop": Rad()}, "clop: expected Clop or settings by name, got Rad"),
        ({"ppo.num_envs": "many"}, r"ppo\.num_envs: expected an integer, got 'many'"),
        ({"ppo.num_envs": 2.5}, r"ppo\.num_envs: expected an integer, got 2\.5"),
        ({"ppo.gamma": True}, r"ppo\.gamma: expected a number, got True"),
        ({"methods": {"rad": Rad()}}, 'methods are chosen by their names: method="rad'),
        ({"num_levels": -1}, "got start_level=0 and num_levels=-1"),
        ({"total_timesteps": 0}, "total_timesteps must be at least 1, got 0"),
        ({"test_every": -1}, "test_every must not be negative, got -1"),
        ({"processes": 3}, "processes=3 does not divide num_envs=64"),
        ({"seed": -1}, "seed must be at least 0"),
        ({"distribution_mode": "esy"}, r"unknown distribution_mode 'esy'; did you mean 'easy'\?"),
    ],
)
@pytest.mark.parametrize("way", ["preset", "changed"])
def test_a_setting_that_is_none_is_refused_in_one_sentence(changes, sentence, way):
    with pytest.raises(UsageError, match=sentence):
        made(way, "quick", "clop", changes)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("quik", "maze"), r"unknown preset 'quik'; did you mean 'quick'\?"),
        (("quick", "mase"), r"unknown game 'mase'; did you mean 'maze'\?"),
        (("quick", "maze", "clp"), r"unknown method 'clp'; did you mean 'clop'\?"),
        (("quick", "maze", "clop+clop"), "a method is named twice in 'clop"),
        (("quick", "maze", "clop(alpa=0.3)"), r"unknown setting 'clop\.alpa'; did you mean 'clop\.alpha'\?"),
        (("quick", "maze", "rad(aug=crp)"), r"unknown rad\.aug 'crp'; did you mean 'crop'\?"),
        (("quick", "maze", "clop(alpha=much)"), r"clop\.alpha: expected a number, got 'much'"),
        (("quick", "maze", "ppo(num_envs=8)"), r"ppo stands for no method and takes no settings"),
    ],
)
def test_a_misspelt_name_is_answered_with_the_right_one(arguments, sentence):
    with pytest.raises(UsageError, match=sentence):
        TrainConfig.preset(*arguments)


# ---- what follows from it --------------------------------------------------------------------------------------------


def test_a_config_goes_through_a_file_and_comes_back_the_same():
    config = TrainConfig.preset(
        "authors-hard", "maze", "rad(aug=flip)+clop(alpha=0.3)", seed=4, **{"network.width": 0.5}
    )
    again = TrainConfig.fromdict(json.loads(json.dumps(config.asdict())))
    assert again == config
    assert list(again.methods) == ["rad", "clop"]


def test_a_file_that_lacks_a_setting_of_a_method_is_not_guessed_at():
    """Values of SNI dropout were once learnt with another mask: the default of today would be wrong."""
    values = TrainConfig.preset("quick", "maze", "dropout(style=sni)").asdict()
    del values["methods"]["dropout"]["critic"]
    with pytest.raises(TypeError, match="Dropout lacks critic"):
        TrainConfig.fromdict(values)


def test_settings_and_levels_of_a_run_are_those_it_was_given():
    """Fails when one of them is lost on the way to the learner."""
    config = TrainConfig.preset(
        "authors-hard", "leaper", start_level=7, num_levels=3, backend="envpool", **{"ppo.num_envs": 8}
    )
    settings, levels = config.settings, config.levels
    assert (levels.game, levels.distribution_mode, levels.start_level, levels.num_levels) == ("leaper", "hard", 7, 3)
    assert (settings.levels, settings.ppo, settings.network) == (levels, config.ppo, config.network)
    assert (settings.rollout_mode, settings.backend) == ("train", "envpool")


@pytest.mark.parametrize(("steps", "iterations"), [(1, 1), (16_384, 1), (16_385, 2)])
def test_the_last_iteration_may_go_beyond_the_steps_asked_for(steps, iterations):
    assert TrainConfig("maze", total_timesteps=steps).iterations == iterations
