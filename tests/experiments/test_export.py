"""Agents for other programs: an export acts as its agent does, needs no clop, and is read again by clop."""

import json
import shutil
import subprocess
import sys
from unittest.mock import Mock

import numpy as np
import pytest
import torch

pytest.importorskip("onnxscript", reason='not installed: pip install "clop[export]"')
pytest.importorskip("onnxruntime", reason='not installed: pip install "clop[export]"')
pytest.importorskip("safetensors", reason='not installed: pip install "clop[export]"')

import clop
from clop.cli import main
from clop.errors import UsageError
from clop.experiments import hub
from clop.experiments.export import export
from clop.experiments.summaries import AgentSummary
from clop.rl import TrainConfig, load_agent, run
from clop.rl.evaluate import evaluate
from clop.rl.exported import Parity, compare
from clop.rl.network import Output
from clop.rl.protocols import EvalConfig

PPO = {"num_envs": 4, "num_steps": 8, "num_minibatches": 2, "update_epochs": 1}


def train(out, method="clop", **changes):
    settings = {"total_timesteps": 32, "num_levels": 5, "eval_episodes": 2, "test_every": 0} | changes
    run(TrainConfig.preset("quick", "fruitbot", method, ppo=PPO, **settings), out)
    return out


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    return train(tmp_path_factory.mktemp("runs") / "clop")


@pytest.fixture(scope="module")
def as_onnx(trained, tmp_path_factory):
    out = tmp_path_factory.mktemp("exports") / "onnx"
    assert main(["export", str(trained), "--to", "onnx", "--out", str(out), "--frames", "300"]) == 0
    return out


@pytest.fixture
def frames():
    return np.random.default_rng(0).integers(0, 256, (5, 64, 64, 3), np.uint8)


def test_the_comparison_is_kept_and_counts_the_frames(as_onnx):
    record = json.loads((as_onnx / "parity.json").read_text())
    assert record["passed"]
    assert record["frames"] == 300
    assert record["greedy_differences"] == 0
    assert 0 <= record["logits_difference"] <= 1e-5
    assert record["versions"]["onnxruntime"]
    assert {"command", "commit", "started", "machine"} <= record.keys()
    agent = {name: record["agent"][name] for name in ("game", "method", "env_steps")}
    assert agent == {"game": "fruitbot", "method": "clop", "env_steps": 32}


def test_nothing_but_the_result_is_said_of_an_export(trained, tmp_path):
    """Fails if torch's exporter tells of packages that it did not find, as it does by its log."""
    words = ["export", str(trained), "--to", "onnx", "--out", str(tmp_path / "out"), "--frames", "1"]
    done = subprocess.run([sys.executable, "-m", "clop", *words], capture_output=True, text=True)
    assert done.returncode == 0
    assert done.stdout.startswith("wrote ")
    assert done.stderr == ""


def test_an_onnx_file_runs_without_clop_on_any_number_of_frames(as_onnx, trained, frames, tmp_path):
    """Fails if preprocessing is left out of the graph, weights lie beside it, or the batch is a constant."""
    code = """
import json, sys, numpy, onnxruntime
frames = numpy.load("frames.npy")
about = json.load(open(sys.argv[1] + "/config.json"))
session = onnxruntime.InferenceSession(sys.argv[1] + "/" + about["file"])
for count in (1, 5):
    logits, value = session.run(["logits", "value"], {about["input"]["name"]: frames[:count]})
    assert logits.shape == (count, about["outputs"]["logits"][1]) and value.shape == (count,)
numpy.save("logits.npy", logits)
assert not [name for name in sys.modules if name.split(".")[0] in ("clop", "torch")]
"""
    np.save(tmp_path / "frames.npy", frames)
    subprocess.run([sys.executable, "-c", code, str(as_onnx)], cwd=tmp_path, check=True)
    agent = load_agent(trained)
    with agent.playing(0):
        expected = agent(torch.from_numpy(frames)).known_logits
    np.testing.assert_allclose(np.load(tmp_path / "logits.npy"), expected, rtol=0, atol=1e-5)


def test_weights_in_safetensors_are_those_of_the_run(trained, tmp_path):
    from safetensors.numpy import load_file

    export(trained, "safetensors", tmp_path / "out", frames=64)
    weights = load_file(tmp_path / "out" / "model.safetensors")
    expected = load_agent(trained).model.state_dict()
    assert weights.keys() == expected.keys()
    for name, tensor in expected.items():
        np.testing.assert_array_equal(weights[name], tensor.numpy())


@pytest.mark.parametrize("to", ["onnx", "safetensors"])
def test_what_was_exported_is_loaded_as_an_agent_that_plays(to, trained, frames, tmp_path):
    """Fails if an export is taken for a run, or plays in another way than its agent."""
    export(trained, to, tmp_path / "out", frames=64)
    agent, again = load_agent(trained), clop.load_agent(tmp_path / "out")
    np.testing.assert_array_equal(agent.act(frames, greedy=True), again.act(frames, greedy=True))
    assert agent.spec == again.spec
    assert agent.ctx.env_steps == again.ctx.env_steps
    levels = TrainConfig.preset("quick", "fruitbot", num_levels=5).levels
    config = EvalConfig(episodes=2, greedy=True)
    assert evaluate(agent, levels, config).mean == evaluate(again, levels, config).mean


@pytest.mark.parametrize("method", ["idaac", "batch_norm"])
def test_methods_that_change_the_network_are_exported_as_they_act(method, tmp_path):
    """Fails if the loaded network is PPO's, or a layer acts as in training."""
    out = train(tmp_path / "run", method)
    assert export(out, "safetensors", tmp_path / "out", frames=64).passed


def test_a_comparison_notices_what_is_not_the_agent(trained):
    """The control: logits that are off by more than the tolerance on a single frame do not pass."""
    agent = load_agent(trained)
    levels = TrainConfig.preset("quick", "fruitbot", num_levels=5).levels
    asked = []

    def off(obs):
        output = agent(obs)
        asked.append(len(obs))
        logits = output.known_logits.clone()
        if len(asked) == 3:
            logits[-1, 0] += 1e-4
        return Output(logits, output.value)

    parity = compare(agent, off, levels, 150)
    assert not parity.passed
    assert parity.logits_difference == pytest.approx(1e-4, rel=0.1)
    assert asked == [64, 1, 11, 64, 11]  # seen levels, with one frame alone, then unseen ones


def test_an_agent_that_draws_while_it_acts_is_refused_and_the_record_says_why(tmp_path):
    out = train(tmp_path / "run", "rand_fm(samples=1)")
    with pytest.raises(UsageError, match="does not act as the agent does"):
        export(out, "safetensors", tmp_path / "out", frames=64)
    assert not json.loads((tmp_path / "out" / "parity.json").read_text())["passed"]


@pytest.fixture(scope="module")
def as_hub(trained, tmp_path_factory):
    pytest.importorskip("av", reason='not installed: pip install "clop[rl]"')
    out = tmp_path_factory.mktemp("exports") / "hub"
    api = Mock()
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "huggingface_hub", api)
        assert main(["export", str(trained), "--to", "hub", "--out", str(out), "--frames", "64"]) == 0
    assert not api.mock_calls  # nothing is uploaded unless asked
    return out


def test_a_card_states_scores_with_protocol_and_seeds(as_hub):
    """Fails if the metadata is no YAML, or a number is not that of the summary."""
    yaml = pytest.importorskip("yaml")
    files = {path.name for path in as_hub.iterdir()}
    expected = {"README.md", "config.json", "model.safetensors", "parity.json", "replay.mp4", "results.json"}
    assert files == expected
    _, front, body = (as_hub / "README.md").read_text().split("---\n", 2)
    (model,) = yaml.safe_load(front)["model-index"]
    summary = json.loads((as_hub / "results.json").read_text())
    for split, result in zip(("train", "test"), model["results"], strict=True):
        (metric,) = result["metrics"]
        assert result["dataset"]["split"] == split
        assert metric["value"].startswith(f"{summary[split]['mean']:.2f} +/- ")
        assert "clop-v1, seed 0" in metric["name"]
        assert f"| {summary[split]['mean']:.2f} |" in body
    assert "training seed 0" in body
    assert "evaluated at the end on levels it has seen and on unseen ones." in body
    assert clop.load_agent(as_hub).ctx.env_steps == 32


def test_the_card_of_an_agent_that_was_trained_on_all_levels_speaks_of_no_unseen_ones(as_hub):
    config = TrainConfig.preset("quick", "fruitbot", "clop", num_levels=0)
    path = as_hub / "results.json"
    values = json.loads(path.read_text())
    values["train"]["level_text"] = values["test"]["level_text"]
    summary = AgentSummary.fromdict(values, path)
    text = hub.card(config, summary, {"command": "clop train", "commit": None}, Parity(64, 0.0, 0.0, 0), 1.0, "hub")
    assert "evaluated at the end on all levels." in text
    assert "unseen" not in text


def test_the_metadata_of_a_card_is_what_the_hub_reads(as_hub):
    repocard = pytest.importorskip("huggingface_hub.repocard", reason="not installed: pip install huggingface_hub")
    data = repocard.ModelCard.load(as_hub / "README.md").data
    assert [result.dataset_split for result in data.eval_results] == ["train", "test"]
    assert data.library_name == "clop"


def test_an_upload_creates_the_repository_and_sends_the_folder(tmp_path, monkeypatch):
    api = Mock()
    api.create_repo.return_value = "https://hub.example/a/b"
    monkeypatch.setitem(sys.modules, "huggingface_hub", Mock(HfApi=Mock(return_value=api)))
    assert hub.upload(tmp_path, "a/b") == "https://hub.example/a/b"
    api.create_repo.assert_called_once_with("a/b", exist_ok=True)
    api.upload_folder.assert_called_once_with(folder_path=tmp_path, repo_id="a/b")


def test_an_upload_that_fails_says_that_the_folder_is_there_and_how_to_go_on(tmp_path, monkeypatch):
    """Fails if a missing network or login ends in a stack trace, as if the export were lost."""
    api = Mock()
    api.create_repo.side_effect = OSError("Name or service not known\nmore")
    monkeypatch.setitem(sys.modules, "huggingface_hub", Mock(HfApi=Mock(return_value=api)))
    with pytest.raises(UsageError, match=r"was not uploaded \(Name or service not known\).*hf upload a/b"):
        hub.upload(tmp_path, "a/b")


def test_mistakes_are_told_in_one_sentence(trained, tmp_path, capsys):
    def told(*words):
        assert main(["export", str(trained), *words]) == 2
        return capsys.readouterr().err

    assert "did you mean 'onnx'" in told("--to", "onx", "--out", str(tmp_path / "a"))
    assert "--upload goes with --to hub" in told("--to", "onnx", "--out", str(tmp_path / "a"), "--upload", "a/b")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    assert "not empty" in told("--to", "onnx", "--out", str(tmp_path / "full"))
    assert main(["export", str(tmp_path), "--to", "onnx", "--out", str(tmp_path / "b")]) == 2
    assert "holds no run" in capsys.readouterr().err


def test_a_card_of_a_run_that_has_not_ended_is_refused(trained, tmp_path):
    shutil.copytree(trained, tmp_path / "run")
    (tmp_path / "run" / "summary.json").unlink()
    with pytest.raises(UsageError, match="has ended"):
        hub.export_hub(tmp_path / "run", tmp_path / "hub")
    assert not (tmp_path / "hub").exists()
