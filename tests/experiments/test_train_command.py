"""The words of ``clop train``: flags, their old names, and what is refused before a folder is made."""

import re
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch

from clop.cli import main
from clop.experiments import agents
from clop.experiments.run_folder import RunFolder
from clop.rl import TrainConfig


@pytest.fixture
def asked(monkeypatch):
    """The settings that a command asks for."""

    def config(words):
        found = []
        with monkeypatch.context() as patch:
            patch.setattr(agents, "run_processes", lambda config, *_: found.append(config) or None)
            assert main(["train", *words.split()]) == 0
        return found[0]

    return config


@pytest.mark.parametrize(
    ("words", "flags"),
    [
        ("--preset authors-easy --method clop", ["--clop.variant raster"]),
        ("--preset authors-hard --method clop_auto", ["--clop-auto.variant raster"]),
        ("--preset authors-easy --method clop --clop.variant raster", []),
        ("--preset authors-easy --method ppo", []),
        ("--preset procgen-easy --method clop", []),
    ],
)
def test_an_authors_preset_says_that_the_layer_is_the_papers(words, flags, asked, tmp_path, capsys):
    """Fails if somebody who asks for the authors' code is left to believe that its layer is in it."""
    asked(f"bigfish {words} --out {tmp_path / 'run'}")
    lines = capsys.readouterr().out.splitlines()
    assert [line.endswith(flag) and "is the paper's" in line for line, flag in zip(lines, flags, strict=True)] == [
        True for _ in flags
    ]


def test_the_page_of_python_names_what_the_command_sets_itself(asked, monkeypatch):
    """Fails for a setting that a user who goes from the command line to Python would lose without knowing."""
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    words, config = asked("bigfish --device cpu").asdict(), TrainConfig.preset("quick", "bigfish").asdict()
    page = Path(__file__).parents[2].joinpath("docs", "python.md").read_text()
    assert {name for name in config if words[name] != config[name]} == {"processes", "test_every"}
    assert asked("bigfish --device cpu --processes 1").threads == torch.get_num_threads()
    assert {"processes", "threads", "test_every"} == {*re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)}


def test_aliases_and_underscores_are_understood(asked, tmp_path):
    config = asked("--env_name=bigfish --num_levels 7 --distribution-mode hard --total-timesteps 1_000")
    assert (config.game, config.num_levels, config.distribution_mode) == ("bigfish", 7, "hard")
    assert config.total_timesteps == 1000


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("--steps 4096", "--total-timesteps 4096"),
        ("--num-timesteps 4096", "--total-timesteps 4096"),
        ("--levels 7", "--num-levels 7"),
        ("--mode hard", "--distribution-mode hard"),
        ("--ppo.epochs 2", "--ppo.update-epochs 2"),
        ("--ppo.minibatches 4", "--ppo.num-minibatches 4"),
        ("--ppo.clip 0.1", "--ppo.clip-coef 0.1"),
        ("--ppo.value-coef 0.25", "--ppo.vf-coef 0.25"),
        ("--ppo.entropy-coef 0.05", "--ppo.ent-coef 0.05"),
        ("--method rad --rad.aug random-conv", "--method rad --rad.aug random_conv"),
        ("--method drac --drac.aug color-jitter", "--method drac(aug=color_jitter)"),
        ("--method clop_auto --clop-auto.levels 5", "--method clop_auto --clop-auto.num-levels 5"),
        ("--env-name bigfish", ""),
    ],
)
def test_old_names_of_flags_mean_the_new_ones(old, new, asked):
    """Fails if a command of an earlier version is refused, or trains with the default."""
    config = asked(f"bigfish {old}")
    assert config == asked(f"bigfish {new}")
    if new:
        assert config != asked("bigfish " + " ".join(part for part in old.split()[:2] if old.startswith("--method")))


def test_levels_is_an_old_name_of_split(tmp_path, monkeypatch):
    config, splits = TrainConfig.preset("quick", "fruitbot"), []
    RunFolder.create(tmp_path / "run", agents.KIND, config.asdict())
    result = Mock(mean=0.0, standard_error=0.0, normalised_mean=None, success_rate=0.0)
    monkeypatch.setattr(agents, "load_agent", lambda *_: Mock(notes=dict))
    monkeypatch.setattr(agents, "evaluate_run", lambda *a: splits.append(a[3].split) or (result, tmp_path))
    for words in ("", "--split test", "--levels test", "--split train", "--levels train"):
        assert main(["evaluate", str(tmp_path / "run"), *words.split()]) == 0
    assert splits == ["test"] * 3 + ["train"] * 2


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["bigfsh"], "unknown game 'bigfsh'; did you mean 'bigfish'?"),
        (["bigfish", "--method", "clpo"], "unknown method 'clpo'; did you mean 'clop'?"),
        (["bigfish", "--clop.alpha", "0.3"], "--clop.alpha is a setting of clop, which is not active here"),
        (["bigfish", "--method", "clop", "--clop.alpha", "two"], "argument --clop.alpha: expected a number, got 'two'"),
        (["bigfish", "--method", "clop+clop"], "a method is named twice"),
        (["bigfish", "--preset", "quik"], "unknown preset 'quik'; did you mean 'quick'?"),
        (["bigfish", "--ppo.num-minibatches", "7"], "num_minibatches=7 does not divide num_envs * num_steps = 4096"),
        (["bigfish", "--processes", "3"], "processes=3 does not divide num_envs=64"),
        (["bigfish", "--processes", "many"], "--processes: expected a number of at least 1 or auto, got 'many'"),
        (["bigfish", "--processes", "²"], "--processes: expected a number of at least 1 or auto, got '²'"),
        (["bigfish", "--method", "daac+idaac"], "idaac and daac cannot be combined: "),
        (["bigfish", "--method", "daac+clop", "--clop.critic", "same"], "the value has a network of its own here"),
        (["bigfish", "--method", "clop+idaac", "--clop.critic", "same"], "the value has a network of its own here"),
        ([], "which game? for example"),
        (["--resume", "x", "--num-levels", "5"], "leave out --num-levels with --resume"),
        (["--resume", "x", "--wrapper", "a:b"], "leave out --wrappers with --resume"),
        (["bigfish", "--resume", "x"], "leave out bigfish with --resume"),
        (["--resume", "x", "--ppo.epochs", "5"], "leave out --ppo.update-epochs with --resume"),
        (["bigfish", "--device", "cudaa"], "--device: expected cpu"),
        (["bigfish", "--seed", "-1"], "seed must be at least 0"),
        (["bigfish", "--env-name", "leaper"], "one game at a time: got bigfish and --env-name leaper"),
        (["bigfish", "--test-every", "-5"], "test_every must not be negative, got -5"),
        (["bigfish", "--eval-episodes", "0"], "eval_episodes must be at least 1, got 0"),
        (["bigfish", "--num-levels", "-5"], "levels must lie in [0, "),
        (["bigfish", "--distribution-mode", "hard", "--num-levels", "600"], "train on levels below 500 or on all"),
        (
            ["bigfish", "--method", "batch_norm", "--batch-norm.statistics", "batch", "--eval-episodes", "1"],
            "batch norm with the statistics of the frames at hand needs many games",
        ),
        (["bigfish", "--method", "daac", "--network.topology", "split"], "daac sets it to decoupled; leave it out"),
        (["bigfish", "--method", "idaac+clop", "--ppo.epochs", "4"], "--ppo.update-epochs 4: idaac+clop sets it to 1"),
        (["bigfish", "--method", "daac", "--ppo.vf-coef", "0.5"], "--ppo.vf-coef 0.5: daac sets it to 1.0"),
        (["bigfish", "--method", "batch_norm", "--network.norm", "block"], "batch_norm sets it to all"),
        (["bigfish", "--method", "mixreg", "--ppo.advantage-norm", "batch"], "mixreg sets it to minibatch"),
        (["bigfish", "--ppo.num-steps", "2", "--processes", "64"], "does not divide the 2 transitions of one process"),
        (["--resume", "x", "--processes", "2"], "leave out --processes with --resume"),
        (["--resume", "x", "--eval-episodes", "2"], "leave out --eval-episodes with --resume"),
        (["bigfish", "--network.encoder", "impla"], "unknown network.encoder 'impla'; did you mean 'impala'?"),
        (["bigfish", "--network.width", "3"], "network.width is one of 0.5, 1, 2, 4, got 3.0"),
        (
            ["bigfish", "--method", "clop", "--clop.slot", "block3"],
            "unknown clop.slot 'block3'; expected one of actor_in, conv1, conv2, conv3, residual (the encoder is small)"
            "\n",
        ),
        (["bigfish", "--method", "clop(alpa=0.3)"], "unknown setting 'clop.alpa'; did you mean 'clop.alpha'?"),
    ],
)
def test_mistakes_are_told_before_anything_is_written(arguments, sentence, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["train", *arguments]) == 2
    told = capsys.readouterr().err
    assert sentence in told
    assert told.count("\n") == 1
    assert not list(tmp_path.iterdir())
