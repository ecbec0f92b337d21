"""``clop train``: flags to a run."""

import argparse
import dataclasses
import os
from collections.abc import Mapping
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

from clop.cli.flags import (
    add_group,
    find_device,
    flag_of,
    given,
    integer,
    number,
    positive,
    refuse_inactive,
    refuse_settings,
)
from clop.errors import UsageError

_SETTINGS = (
    *("method", "preset", "steps", "levels", "mode", "seed", "out", "processes", "backend"),
    *("test_every", "eval_episodes"),
)


def add_train(commands: Any) -> None:
    from clop.rl.methods import METHODS
    from clop.rl.network import NetworkConfig
    from clop.rl.ppo import PPOConfig
    from clop.rl.presets import PRESETS

    parser: argparse.ArgumentParser = commands.add_parser(
        "train",
        help="train an agent on a Procgen game",
        description="Train PPO, with any methods, on a Procgen game. The run is a folder; killed at any moment, it "
        "goes on with --resume as if nothing had happened.",
        epilog="presets: " + "; ".join(f"{name}: {preset.about}" for name, preset in PRESETS.items()),
    )
    # Second names are those that other Procgen code has taught its users.
    parser.add_argument("game", nargs="?", help="one of the 16 games, such as bigfish")
    parser.add_argument("--env-name", metavar="GAME", help="the same")
    parser.add_argument(
        "--method", default=None, metavar="NAME[+NAME]", help="ppo, or " + ", ".join(METHODS) + " (default: ppo)"
    )
    parser.add_argument("--preset", metavar="NAME", help="default: quick on a CPU, procgen-easy on a GPU")
    parser.add_argument(
        "--steps", "--num-timesteps", "--total-timesteps", type=integer, metavar="N", help="env steps in all"
    )
    parser.add_argument("--levels", "--num-levels", type=integer, metavar="N", help="training levels; 0 stands for all")
    parser.add_argument("--mode", "--distribution-mode", choices=("easy", "hard"), help="difficulty")
    parser.add_argument("--seed", type=integer, metavar="N", help="default: 0")
    parser.add_argument(
        "--out", type=Path, metavar="FOLDER", help="new folder for the run (default: runs/GAME-METHOD-SEED)"
    )
    parser.add_argument("--resume", type=Path, metavar="FOLDER", help="go on with the run in this folder")
    parser.add_argument(
        "--processes", metavar="N", help="that share the games, or auto: one for each core of a CPU (default: auto)"
    )
    parser.add_argument("--device", default=None, help="default: cuda if there is one, else cpu")
    parser.add_argument("--backend", default=None, help="procgen-mirror or envpool (default: what is installed)")
    parser.add_argument(
        "--checkpoint-minutes",
        type=number,
        default=10.0,
        metavar="X",
        help="between checkpoints (default: %(default)s)",
    )
    parser.add_argument(
        "--test-every",
        type=integer,
        metavar="N",
        help="steps between tests of 32 episodes on unseen levels while training; 0 for none (default: ten tests)",
    )
    parser.add_argument(
        "--eval-episodes",
        type=positive,
        metavar="N",
        help="of the evaluations at the end (default: 1000, or 100 for quick)",
    )
    add_group(parser, "ppo", PPOConfig)
    add_group(parser, "network", NetworkConfig)
    for name, config in METHODS.items():
        add_group(parser, name, config)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    from clop.distributed import check_gpus, run_together
    from clop.experiments.agents import KIND, summarise
    from clop.experiments.loop import resumable
    from clop.experiments.run_folder import RunFolder
    from clop.rl.envs.vector import preload
    from clop.rl.train import TrainConfig, check_run

    device = find_device(arguments.device)
    first = os.environ.get("RANK", "0") == "0"
    folder: RunFolder | None
    if arguments.resume is not None:
        refuse_settings(arguments, ("game", "env_name"), _SETTINGS)
        folder = RunFolder.open(arguments.resume, KIND)
        config = folder.read_config(TrainConfig.fromdict)
        if (summary := folder.summary) is not None:
            if first:
                print(f"the run is complete: {_outcome(summary)}; it is in {folder.path}")
            return
    else:
        config = _config(arguments, device)
        check_run(config)
        _refuse_overridden(arguments, config)
        check_gpus(config.processes, device)
        out = arguments.out or Path("runs") / f"{config.game}-{config.method}-{config.seed}"
        folder = RunFolder.create(out, KIND, config.asdict()) if first else None
    preload(config.backend)
    part = partial(_train, config, folder, device, 60 * arguments.checkpoint_minutes)
    with nullcontext() if folder is None else resumable(folder):
        work = run_together(config.processes, device, part)
        if not first or folder is None:
            return
        summary = summarise(folder, work)
    print(f"{_outcome(summary)}; the run is in {folder.path}")


def _outcome(summary: Mapping[str, Any]) -> str:
    from clop.experiments.agents import method_text

    test = summary["test"]
    return (
        f"{summary['game']} with {method_text(summary['method'], summary['notes'])}, preset {summary['preset']}, "
        f"{summary['env_steps']} steps: {summary['train']['mean']:.2f} on training levels, {test['mean']:.2f} on "
        f"unseen ones ({test['episodes']} episodes each, {test['protocol']})"
    )


def _train(config: Any, folder: Any, device: str, checkpoint_seconds: float) -> Any:
    """The part of this process in the run."""
    import torch

    from clop import machine
    from clop.distributed import Workers
    from clop.experiments.agents import train_agent

    machine.keep_memory()
    torch.set_num_threads(config.threads)
    workers = Workers()
    return train_agent(config, folder if workers.is_first else None, device, checkpoint_seconds, workers)


def _config(arguments: argparse.Namespace, device: str) -> Any:
    """The settings of a new run."""
    import torch

    from clop.rl import methods
    from clop.rl.envs.vector import choose_backend
    from clop.rl.games import find_game
    from clop.rl.methods import METHODS
    from clop.rl.presets import find_preset
    from clop.rl.train import preset_config

    game = arguments.game or arguments.env_name
    if game is None:
        raise UsageError("which game? for example: clop train bigfish --method clop")
    if arguments.env_name not in (None, game):
        raise UsageError(f"one game at a time: got {game} and --env-name {arguments.env_name}")
    find_game(game)
    active = methods.names("ppo" if arguments.method is None else arguments.method)
    refuse_inactive(arguments, METHODS, active, "add it with --method {name}")
    preset_name = arguments.preset or ("procgen-easy" if device.startswith("cuda") else "quick")
    preset = find_preset(preset_name)
    changes: dict[str, Any] = {
        name: value
        for name in ("steps", "levels", "mode", "seed", "eval_episodes")
        if (value := getattr(arguments, name)) is not None
    }
    ppo = dataclasses.replace(preset.ppo, **given(arguments, "ppo"))
    steps = changes.get("steps", preset.steps)
    every = arguments.test_every if arguments.test_every is not None else max(1, steps // 10)
    return preset_config(
        game,
        preset_name,
        **changes,
        ppo=ppo,
        network=dataclasses.replace(preset.network, **given(arguments, "network")),
        methods={name: METHODS[name](**given(arguments, name)) for name in active},
        processes=(processes := _processes(arguments.processes or "auto", ppo.num_envs, device)),
        threads=1 if processes > 1 else torch.get_num_threads(),
        backend=choose_backend(arguments.backend or "auto"),
        test_every=every,
    )


def _refuse_overridden(arguments: argparse.Namespace, config: Any) -> None:
    """A :class:`UsageError` for a setting that was asked for and that a method sets otherwise."""
    from clop.rl.train import edited_plan

    plan = edited_plan(config)
    for group in ("ppo", "network"):
        for name, value in given(arguments, group).items():
            used = getattr(getattr(plan, group), name)
            if used != value:
                raise UsageError(f"{flag_of(group, name)} {value}: {config.method} sets it to {used}; leave it out")


def _processes(wanted: str, num_envs: int, device: str) -> int:
    """``auto``: one for each core of a CPU, one in all on a GPU; under torchrun, as many as it starts."""
    if "WORLD_SIZE" in os.environ:
        return int(os.environ["WORLD_SIZE"])
    if wanted != "auto":
        if not wanted.isdecimal() or int(wanted) < 1:
            raise UsageError(f"--processes: expected a number of at least 1 or auto, got {wanted!r}")
        return int(wanted)
    if device != "cpu":
        return 1
    return max(count for count in range(1, (os.cpu_count() or 1) + 1) if num_envs % count == 0)
