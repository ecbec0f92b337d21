"""The scripts in examples/ run, for a few seconds each, and do what they say."""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from clop.rl.envs.backends import PROCGEN, installed_backends

pytestmark = pytest.mark.slow
EXAMPLES = Path(__file__).parents[1] / "examples"
WITHOUT_TORCHVISION = Path(__file__).parent / "run_without_torchvision.py"
with_procgen = pytest.mark.skipif(not set(PROCGEN) & set(installed_backends()), reason="no Procgen is installed")


def needs(module, how):
    return pytest.mark.skipif(importlib.util.find_spec(module) is None, reason=f"not installed: {how}")


def imports(module):
    """Whether it can be imported; a torchvision that was built for another torch is found, and is not."""
    return subprocess.run([sys.executable, "-c", f"import {module}"], capture_output=True).returncode == 0


def run(script, *words, through=()):
    command = [sys.executable, *map(str, through), str(EXAMPLES / script), *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"PYTHONWARNINGS": "default"})
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def number_after(word, text):
    return float(re.search(rf"{word} ([\d.]+)", text)[1])


def test_the_network_of_plain_torch_learns_under_clop():
    """Chance is 0.25. Fails if the example's network cannot be trained as it stands."""
    assert number_after("accuracy", run("torch_cnn.py", "--epochs", 4)) > 0.6


@with_procgen
@needs("gymnasium", 'pip install "clop[gymnasium]"')
def test_ppo_in_the_style_of_cleanrl_runs_on_the_games():
    settings = ("--num-envs", 8, "--num-steps", 16, "--total-timesteps", 256)
    assert "global_step 256" in run("cleanrl_ppo.py", *settings)


@with_procgen
@needs("stable_baselines3", 'pip install "clop[sb3]"')
def test_stable_baselines3_trains_and_is_evaluated_on_both_splits():
    settings = ("--game", "fruitbot", "--num-envs", 4, "--rollout", 16, "--steps", 64, "--episodes", 2)
    said = run("sb3_ppo.py", *settings)
    assert "train levels: " in said
    assert "test levels: " in said


@with_procgen
@needs("onnxruntime", 'pip install "clop[export]"')
@needs("onnxscript", 'pip install "clop[export]"')
def test_an_exported_agent_plays_from_its_onnx_file(tmp_path):
    from clop.experiments.export import export
    from clop.rl import TrainConfig
    from clop.rl import run as train

    ppo = {"num_envs": 4, "num_steps": 8, "num_minibatches": 2, "update_epochs": 1}
    settings = {"total_timesteps": 32, "num_levels": 5, "eval_episodes": 2, "test_every": 0}
    train(TrainConfig.preset("quick", "fruitbot", ppo=ppo, **settings), tmp_path / "run")
    export(tmp_path / "run", "onnx", tmp_path / "onnx", frames=64)
    assert "episodes on unseen levels" in run("onnx_policy.py", tmp_path / "onnx", "--steps", 60, "--num-envs", 4)


@needs("lightning", "pip install lightning")
def test_the_lightning_module_learns_with_a_growing_alpha():
    assert number_after("accuracy", run("lightning_module.py", "--epochs", 4)) > 0.6


@needs("timm", "pip install --no-deps timm")
def test_clop_is_inserted_into_a_model_of_timm_where_it_has_an_effect():
    """Fails if a CLOP right before the global average pool, which would do nothing, is accepted.

    Where torchvision is missing or does not load, timm is given an empty one; its models are its own.
    """
    said = run("timm_model.py", through=() if imports("torchvision") else [WITHOUT_TORCHVISION])
    assert "would do nothing" in said
    assert "CLOP is layer3.clop" in said
