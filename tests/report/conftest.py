"""Runs as they would be written, with made-up numbers; for tests of reports."""

import json
from pathlib import Path

import pytest

from clop.experiments.summaries import FORMAT_VERSION, AgentSummary, EvaluationSummary, VisionSummary
from clop.rl.config import TrainConfig
from clop.rl.games import normalised_return


def _evaluation(game, split, mean, mode="easy", success=0.5):
    normalised = float(normalised_return(mean, game, mode))
    return EvaluationSummary(
        *("clop-v1", game, mode, split, "levels", "procgen-mirror"), 0, 1024, mean, 0.1, normalised, success, 100.0
    )


def _write_agent(
    path: Path,
    game="bigfish",
    method="ppo",
    seed=0,
    train=10.0,
    test=5.0,
    *,
    steps=1_000_000,
    preset="procgen-easy",
    earlier=(),
    curve=(),
    finished=True,
    **changes,
):
    """A run folder. ``earlier`` are (steps, train, test); ``curve`` (steps, running return, test return or None)."""
    config = TrainConfig.preset(preset, game, method, seed=seed, total_timesteps=steps, **changes)
    path.mkdir(parents=True)
    about = {"version": FORMAT_VERSION, "kind": "agent", "config": config.asdict(), "command": f"clop train {game}"}
    about |= {"commit": "0" * 40, "started": "2026-01-01T00:00:00+00:00", "machine": {"processor": "made up"}}
    (path / "config.json").write_text(json.dumps(about))
    rows = [{"iteration": i, "env_steps": s, "episodic_return": r} for i, (s, r, _) in enumerate(curve)]
    for row, (_, _, tested) in zip(rows, curve, strict=True):
        if tested is not None:
            row["test_return"] = tested
    (path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    if finished:
        mode = config.distribution_mode
        ends = [_evaluation(game, split, value, mode) for split, value in (("train", train), ("test", test))]
        summary = AgentSummary(
            *(game, config.method, {}, preset, seed, steps, *ends, train - test), 1000.0, steps / 1000, 1.0
        )
        values = summary.asdict()
        if earlier:
            values["earlier"] = [
                {
                    "env_steps": at,
                    "train": vars(_evaluation(game, "train", seen, mode)),
                    "test": vars(_evaluation(game, "test", unseen, mode)),
                    "seconds": at / 1000,
                }
                for at, seen, unseen in earlier
            ]
        (path / "summary.json").write_text(json.dumps(values))
    return path


def _write_classifier(
    path: Path, method="plain", seed=0, test=80.0, task="mnist-usps", changed=None, epochs=10, **more
):
    """A run folder of a classifier; of ``more``, fields of the summary."""
    path.mkdir(parents=True)
    tests = {"mnist-usps": "usps"}.get(task, task)
    changed = changed or {}
    settings = ", ".join(f"{k}={v}" for k, v in changed.get(method, {}).items())
    values = {
        "task": task,
        "method": method,
        "changed": changed,
        "label": f"{method}({settings})" if settings else method,
        "network": "small_cnn",
        "source": "mnist",
        "train_images": 10_000,
        "scale": "small_cnn, 10000 of 60000 images of mnist, 32 px, 10 epochs",
        "slot": "stage3" if method == "clop" else None,
        "seed": seed,
        "running_accuracy": 98.0,
        "train_accuracy": 99.0,
        "test_accuracy": {tests: test},
        "images_per_second": 100.0,
        "seconds": 1.0,
        "peak_memory_gb": 1.0,
    } | more
    summary = VisionSummary(**values)
    config = {"task": task, "epochs": epochs, "seed": seed, "threads": 1, "data": None, "test_every": 1, "methods": {}}
    config["train_images"] = values["train_images"]
    (path / "config.json").write_text(json.dumps({"version": FORMAT_VERSION, "kind": "vision", "config": config}))
    (path / "summary.json").write_text(json.dumps(summary.asdict()))
    return path


@pytest.fixture(scope="session")
def write_agent():
    return _write_agent


@pytest.fixture(scope="session")
def write_classifier():
    return _write_classifier
