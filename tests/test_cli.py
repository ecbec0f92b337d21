"""The command line: it teaches, it tells mistakes in one sentence, and its commands leave what they say."""

import dataclasses
import json
import operator
import os
import re
import signal
import subprocess
import sys
import time

import pytest
import torch
from PIL import Image

import clop.rl
from clop import cli, demo_agents, doctor
from clop.cli import main
from clop.cli.train import outcome
from clop.errors import UsageError
from clop.experiments import agents
from clop.experiments.record import RunRecord
from clop.experiments.run_folder import RunFolder
from clop.experiments.summaries import AgentSummary, EvaluationSummary
from clop.rl.config import PRESETS, TrainConfig
from clop.rl.methods import METHODS


def test_help_names_every_command(capsys):
    with pytest.raises(SystemExit) as exit_:
        main(["--help"])
    assert exit_.value.code == 0
    text = capsys.readouterr().out
    commands = re.findall(r"^    (\w+) ", text, re.MULTILINE)
    assert {*commands} == {
        *("doctor", "picture", "bench", "demo", "vision", "methods", "report", "sweep", "page", "saliency"),
        *("train", "evaluate", "watch", "plot", "export"),
    }


def test_methods_are_listed_with_their_settings_and_a_misspelt_one_is_told(capsys):
    assert main(["methods"]) == 0
    listed = capsys.readouterr().out
    assert all(name in listed for name in METHODS)
    assert main(["methods", "clop"]) == 0
    told = capsys.readouterr().out
    assert "--clop.alpha (default: auto) Probability of a swap" in told
    assert "--[no-]clop.channel-consistent (default: True) Whether all channels are permuted alike" in told
    assert main(["methods", "clpo"]) == 2
    assert "did you mean 'clop'?" in capsys.readouterr().err


def test_every_flag_of_train_says_what_it_does():
    """Fails for a field of a config without the text that its flag shows; the default alone does not say it."""
    (commands,) = (action for action in cli._parser(["train"])._actions if action.dest == "command")
    actions = commands.choices["train"]._actions
    fields = {field.name for field in dataclasses.fields(TrainConfig)} - {"game", "preset_name", "processes"}
    groups = {"network", "ppo", "methods"}
    assert {action.dest for action in actions} >= {f"train.{name}" for name in fields - groups}
    assert {action.dest.split(".")[0] for action in actions} >= {"network", "ppo", *METHODS}
    for action in actions:
        text = re.sub(r"\(default: .*\)$", "", action.help or "").strip()
        assert len(text) > 5, action.option_strings


@pytest.mark.parametrize("preset", PRESETS)
def test_the_help_of_train_has_the_defaults_of_every_preset(preset):
    """Fails for a default of the config that a preset changes: 256 steps of a rollout, where quick has 64."""
    (commands,) = (action for action in cli._parser(["train"])._actions if action.dest == "command")
    config, compared = TrainConfig.preset(preset, "bigfish"), set()
    for action in commands.choices["train"]._actions:
        group, _, name = action.dest.partition(".")
        if group not in ("train", "ppo", "network") or name in ("wrappers", "threads", "test_every"):
            continue
        (shown,) = re.findall(r"\(default: (.*)\)$", action.help)
        for part in shown.split(", "):
            value, _, presets = part.removeprefix("otherwise ").partition(" in ")
            if not presets or preset in presets.split(" and "):
                break
        assert value == str(operator.attrgetter(action.dest.removeprefix("train."))(config)), action.dest
        compared.add(action.dest.removeprefix("train."))
    assert compared >= PRESETS[preset].changes.keys() | {"seed"}


def test_clop_rl_offers_the_settings_a_run_and_its_agent():
    assert clop.rl.__all__ == ["TrainConfig", "load_agent", "make_vec", "run"]
    assert (clop.rl.TrainConfig, clop.rl.run, clop.rl.load_agent) == (TrainConfig, agents.run, agents.load_agent)
    with pytest.raises(AttributeError, match=r"module 'clop\.rl' has no attribute 'train'"):
        _ = clop.rl.train


def test_an_anchor_of_a_figure_that_is_no_number_is_told(tmp_path, capsys):
    assert main(["plot", "run", "--out", str(tmp_path / "a.png"), "--anchor", "OpenAI", "many", "1"]) == 2
    assert "--anchor takes a name, a number of steps and a return" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["demoo"], "clop: unknown command 'demoo'; did you mean 'demo'?"),
        ([], "clop: the following arguments are required: command; see clop --help"),
        (["picture"], "clop: the following arguments are required: --out; see clop picture --help"),
        (
            ["picture", "--out", "x.png", "--alpha", "nan"],
            "clop: argument --alpha: expected a probability in [0, 1], got 'nan'; see clop picture --help",
        ),
        (["picture", "no.jpg", "--out", "x.png"], "clop: no image at no.jpg"),
        (
            ["picture", "--out", "x.xyz"],
            "clop: cannot write a picture as '.xyz'; expected .png, .jpg or .webp",
        ),
        (
            ["demo", "--epochs", "0"],
            "clop: argument --epochs: expected an integer of at least 1, got '0'; see clop demo --help",
        ),
        (["bench", "layers"], "clop: unknown benchmark 'layers'; did you mean 'layer'?"),
    ],
)
def test_a_mistake_is_one_sentence_and_status_2(arguments, sentence, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.err.strip() == sentence
    assert captured.out == ""


def test_a_picture_of_any_image_is_written(tmp_path, capsys):
    source, target = tmp_path / "wide.jpg", tmp_path / "new" / "out.png"
    Image.new("RGB", (300, 150), (200, 30, 30)).save(source)
    assert main(["picture", str(source), "--out", str(target), "--size", "32"]) == 0
    with Image.open(target) as picture:
        assert picture.width > 6 * 200
    assert str(target) in capsys.readouterr().out


def test_a_file_that_is_no_image_is_told_apart_from_a_missing_one(tmp_path, capsys):
    (tmp_path / "text.png").write_text("not an image")
    assert main(["picture", str(tmp_path / "text.png"), "--out", str(tmp_path / "x.png")]) == 2
    assert "is no image that can be read" in capsys.readouterr().err


def test_doctor_says_what_works_and_what_to_install(capsys, monkeypatch):
    assert main(["doctor", "--json"]) == 0
    parts = {part["name"]: part for part in json.loads(capsys.readouterr().out)["parts"]}
    assert parts["layer"]["works"]
    monkeypatch.setitem(sys.modules, "sklearn", None)
    assert main(["doctor"]) == 0
    missing = [line for line in capsys.readouterr().out.splitlines() if line.startswith("missing")]
    assert any('pip install "clop[vision]"' in line for line in missing)


def test_doctor_notices_a_kernel_that_changes_values(monkeypatch):
    """Fails when only the sum is looked at, which a mean in every place keeps."""
    monkeypatch.setattr(doctor, "clop", lambda x, alpha: torch.full_like(x, x.mean().item()))
    (layer,) = (part for part in doctor.examine() if part.name == "layer")
    assert not layer.works


def test_a_seed_that_torch_does_not_take_is_told(tmp_path, capsys):
    assert main(["picture", "--out", str(tmp_path / "a.png"), "--seed", "-1"]) == 2
    assert capsys.readouterr().err == "clop: seed must be at least 0 and below 2^63, got -1\n"


def test_the_module_runs_as_the_command():
    done = subprocess.run([sys.executable, "-m", "clop", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("clop ")


def test_bench_layer_prints_a_record(capsys):
    assert main(["bench", "layer", "--json", "--rounds", "1"]) == 0
    record = RunRecord(**json.loads(capsys.readouterr().out))
    rows = record.metrics["rows"]
    assert {row["baseline"] for row in rows} >= {"two clones", "Dropout2d", "plain-Python layer"}
    assert all(row["ratio"] == row["ours_ms"] / row["baseline_ms"] for row in rows)


def test_demo_leaves_table_figure_and_runs_and_goes_on_where_it_stopped(tmp_path, capsys, monkeypatch):
    """Fails if a second call trains again, or takes runs of other settings for its own."""
    out = tmp_path / "demo"
    monkeypatch.setattr("clop.demo_agents.run_both", lambda *_: "two agents")
    assert main(["demo", "--out", str(out), "--epochs", "1"]) == 0
    told = capsys.readouterr().out
    assert "clop(0.6)" in told
    page = out / "page" / "index.html"
    assert f"open {page.resolve()}" in told
    assert "clop(alpha=0.6)" in page.read_text()
    assert "one seed (0)" in (out / "digits.md").read_text()
    with Image.open(out / "digits.png") as figure:
        assert figure.width > 500
    run = RunFolder.open(out / "digits-clop", "vision")
    assert run.config["methods"]["clop"]["alpha"] == 0.6
    assert 0 < run.summary["test_accuracy"]["filled"] <= 100
    (run.path / "summary.json").unlink()
    trained = []
    monkeypatch.setattr(
        "clop.experiments.vision.VisionWork", lambda config, *_: trained.append(config.method) or _Stop.now()
    )
    with pytest.raises(_Stop):
        main(["demo", "--out", str(out), "--epochs", "1"])
    assert trained == ["clop"]
    assert main(["demo", "--out", str(out), "--epochs", "2"]) == 2
    assert "other settings" in capsys.readouterr().err


@pytest.fixture
def small_agents(monkeypatch):
    """Agents of the demo at a hundredth of their size, one iteration for 32 steps."""
    changes = {"ppo.num_envs": 4, "ppo.num_steps": 8, "ppo.num_minibatches": 2, "eval_episodes": 2, "test_every": 0}
    make = demo_agents._config
    monkeypatch.setattr(demo_agents, "_config", lambda *arguments: make(*arguments).changed(**changes))
    monkeypatch.setattr(demo_agents, "_POLL", 0.05)


@pytest.mark.slow
@pytest.mark.usefixtures("small_agents")
def test_the_demo_leaves_both_agents_their_table_curves_and_video_and_goes_on_where_it_stopped(tmp_path, monkeypatch):
    """Fails if a second call trains again, if one that was killed after training starts over, or if runs of other
    settings are taken for its own."""
    pytest.importorskip("av")
    out = tmp_path / "demo"
    told = demo_agents.run_both(out, 64, 3)
    assert told == (out / "starpilot.md").read_text()
    assert told.startswith(
        "Return on starpilot: 64 steps (the paper: 25 million), 50 training levels, one seed (3), 2 ep"
    )
    assert all(f"| {agent} " in told for agent in ("PPO", "PPO with CLOP"))
    assert told.endswith("one seed ranks no method.\n")
    for name in ("ppo", "clop"):
        summary = RunFolder.open(out / f"starpilot-{name}", "agent").summary
        assert (summary["method"], summary["env_steps"], summary["seed"]) == (name, 64, 3)
    with Image.open(out / "starpilot.png") as figure:
        assert figure.width > 500
    assert (out / "starpilot.mp4").stat().st_size > 10_000
    assert (out / "starpilot.webm").stat().st_size > 10_000
    (out / "starpilot.mp4").unlink()
    monkeypatch.setattr(subprocess, "Popen", lambda *_, **__: pytest.fail("there is nothing left to train"))
    assert demo_agents.run_both(out, 64, 3) == told
    assert (out / "starpilot.mp4").stat().st_size > 10_000
    with pytest.raises(UsageError, match=r"starpilot-ppo holds a run with other settings \(seed\)"):
        demo_agents.run_both(out, 64, 4)


@pytest.mark.slow
@pytest.mark.usefixtures("small_agents")
def test_an_agent_of_the_demo_that_cannot_be_trained_is_told_and_the_other_stops(tmp_path, monkeypatch):
    make = demo_agents._config
    monkeypatch.setattr(demo_agents, "_config", lambda *a: dataclasses.replace(make(*a), backend="envpol"))
    with pytest.raises(UsageError, match=r"training PPO has failed: clop: unknown back end 'envpol'; did you mean"):
        demo_agents.run_both(tmp_path / "demo", 64, 0)


DEMO = """
import sys
from pathlib import Path
from clop import demo_agents
make = demo_agents._config
sizes = {"ppo.num_envs": 4, "ppo.num_steps": 8, "ppo.num_minibatches": 2, "eval_episodes": 2, "test_every": 0}
demo_agents._config = lambda *arguments: make(*arguments).changed(**sizes)
demo_agents.run_both(Path(sys.argv[1]), 1_000_000, 0)
"""


@pytest.mark.slow
def test_a_demo_that_is_interrupted_has_saved_both_agents(tmp_path):
    """Ctrl-C reaches every process of the terminal. Fails if a run takes it and the wish of the demo for two wishes,
    and stops at once without a checkpoint."""
    out = tmp_path / "demo"
    words = [sys.executable, "-c", DEMO, str(out)]
    process = subprocess.Popen(words, stderr=subprocess.PIPE, text=True, start_new_session=True)
    runs = [RunFolder(out / f"starpilot-{name}") for name in ("ppo", "clop")]
    while not all(run.metrics() for run in runs):
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=600)
    assert "KeyboardInterrupt" in errors
    for run in runs:
        assert run.load()["iteration"] == run.metrics()[-1]["iteration"]


def summary_of(method, test, steps):
    side = EvaluationSummary(
        "clop-v1", "starpilot", "easy", "test", "all levels", "procgen-mirror", 0, 256, test, 0.1, 0.1, 0.0, 100.0
    )
    return AgentSummary("starpilot", method, {}, "quick", 0, steps, side, side, 0.0, 1.0, 180.0, None)


@pytest.mark.parametrize(
    ("clop", "sentence"),
    [
        (3.0, "PPO with CLOP is ahead by 1.00, which is more than chance over episodes explains"),
        (1.9, "PPO is ahead by 0.10, which may be chance"),
    ],
)
def test_the_table_of_the_demo_says_who_is_ahead_and_whether_that_may_be_chance(clop, sentence):
    summaries = {"ppo": summary_of("ppo", 2.0, 1_015_808), "clop": summary_of("clop", clop, 1_015_808)}
    told = demo_agents.table(summaries)
    assert f"On unseen levels {sentence}; one seed ranks no method.\n" in told
    assert told.startswith("Return on starpilot: 1 015 808 steps (the paper: 25 million), 50 training levels, one seed")


def test_an_agent_that_was_trained_on_all_levels_is_not_said_to_have_seen_unseen_ones():
    """Fails for a sentence that takes the second evaluation for one on levels that training did not have."""
    summary = summary_of("ppo", 2.0, 4096)
    assert "4096 steps: 2.00 and 2.00 in two evaluations on all levels, which training had too (" in outcome(summary)
    some = dataclasses.replace(summary.train, level_text="levels 0 to 49")
    few = dataclasses.replace(summary, train=some)
    assert "4096 steps: 2.00 on training levels, 2.00 on unseen ones (" in outcome(few)


class _Stop(Exception):  # noqa: N818
    @classmethod
    def now(cls):
        raise cls
