"""``clop train``: flags to a run."""

import argparse
import operator
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clop.cli.flags import (
    add_group,
    add_settings,
    add_track,
    find_device,
    flag_of,
    given,
    number,
    refuse_inactive,
    refuse_settings,
)
from clop.errors import UsageError

if TYPE_CHECKING:
    from clop.experiments.summaries import AgentSummary
    from clop.rl.config import TrainConfig

_ALIASES = {
    "total_timesteps": ("steps", "num-timesteps"),
    "num_levels": ("levels",),
    "distribution_mode": ("mode",),
    "ppo.update_epochs": ("ppo.epochs",),
    "ppo.num_minibatches": ("ppo.minibatches",),
    "ppo.clip_coef": ("ppo.clip",),
    "ppo.vf_coef": ("ppo.value-coef",),
    "ppo.ent_coef": ("ppo.entropy-coef",),
    "clop_auto.num_levels": ("clop-auto.levels",),
    "network.amp": ("amp",),
}
"""Second names: those of earlier versions, and those that other code has taught its users."""
_SET_HERE = {
    "threads": "torch's own number in one process, 1 in each of several",
    "test_every": "a tenth of total_timesteps",
}
"""What a setting is if it is not given, where :func:`_config` decides."""
_BY_HAND = ("game", "wrappers", "preset_name", "processes", "network", "ppo", "methods")


def add_train(commands: Any) -> None:
    from clop.rl.config import PRESETS, TrainConfig
    from clop.rl.methods import METHODS
    from clop.rl.settings import NetworkConfig, PPOConfig

    parser: argparse.ArgumentParser = commands.add_parser(
        "train",
        help="train an agent on a game",
        description="Train PPO, with any methods, on a game: one of Procgen's 16, an environment of Gymnasium "
        "(gymnasium:ID), or one of your own (module:function). The run is a folder; killed at any moment, it goes on "
        "with --resume, or with the same command, as if nothing had happened.",
        epilog="presets: "
        + "; ".join(f"{name}: {preset.about}" for name, preset in PRESETS.items())
        + ". A method may set some of the settings of ppo and network itself.",
    )
    parser.add_argument(
        "game", nargs="?", help="one of Procgen's 16 games such as bigfish, gymnasium:ID, or module:function"
    )
    parser.add_argument("--env-name", metavar="GAME", help="another way to name the game")
    parser.add_argument(
        *("--wrapper", "--wrappers"),
        action="append",
        dest="train.wrappers",
        default=argparse.SUPPRESS,
        metavar="MODULE:CLASS",
        help="a Gymnasium wrapper around the game; may be given again, the innermost first",
    )
    parser.add_argument(
        "--method",
        default=None,
        metavar="NAME[+NAME]",
        help="ppo, or " + ", ".join(METHODS) + "; with settings as in clop(alpha=0.3) (default: ppo)",
    )
    parser.add_argument(
        "--preset", metavar="NAME", help="named settings (default: quick on a CPU, procgen-easy on a GPU)"
    )
    parser.add_argument(
        "--out", type=Path, metavar="FOLDER", help="folder for the run (default: runs/GAME-METHOD-SEED)"
    )
    parser.add_argument("--resume", type=Path, metavar="FOLDER", help="go on with the run in this folder")
    parser.add_argument(
        "--processes",
        metavar="N",
        help="number of processes that share the games, or auto: one for each core of a CPU as far as the games "
        "divide, one in all on a GPU (default: auto)",
    )
    parser.add_argument("--device", default=None, help="cpu or cuda (default: cuda if there is one)")
    parser.add_argument(
        "--checkpoint-minutes",
        type=number,
        default=1.0,
        metavar="X",
        help="minutes between checkpoints (default: %(default)s)",
    )
    add_track(parser)
    defaults = _SET_HERE | _preset_defaults()
    add_settings(parser, TrainConfig, _BY_HAND, _ALIASES, defaults)
    add_group(parser, "ppo", PPOConfig, _ALIASES, defaults)
    add_group(parser, "network", NetworkConfig, _ALIASES, defaults)
    for name, config in METHODS.items():
        add_group(parser, name, config, _ALIASES)
    parser.set_defaults(run=run)


def _preset_defaults() -> dict[str, str]:
    """Of the settings that a preset changes: what they are in which."""
    from clop.rl.config import PRESETS, TrainConfig

    texts, plain = {}, TrainConfig("bigfish")
    for name in sorted({name for preset in PRESETS.values() for name in preset.changes}):
        presets: dict[Any, list[str]] = {}
        for preset_name, preset in PRESETS.items():
            if name in preset.changes:
                presets.setdefault(preset.changes[name], []).append(preset_name)
        values = [f"{value} in {' and '.join(names)}" for value, names in presets.items()]
        texts[name] = ", ".join([*values, f"otherwise {operator.attrgetter(name)(plain)}"])
    return texts


def run(arguments: argparse.Namespace) -> None:
    from clop.experiments.agents import is_complete, read_config, run_processes

    device = find_device(arguments.device)
    if arguments.resume is not None:
        names = ("method", "preset", "out", "processes")
        refuse_settings(arguments, ("game", "env_name"), names, allowed=("train.total_timesteps",))
        out, config = arguments.resume, read_config(arguments.resume).changed(**given(arguments, "train"))
    else:
        config = _config(arguments, device)
        _refuse_overridden(arguments, config)
        name = re.sub(r"[^\w.+-]+", "-", f"{config.game}-{config.method}-{config.seed}")
        out = arguments.out or Path("runs") / name
    for line in _layer_notes(config):
        print(line)
    complete = is_complete(out, config)
    summary = run_processes(config, out, device, 60 * arguments.checkpoint_minutes, arguments.track)
    if summary is not None:
        print(f"{'the run is complete: ' if complete else ''}{outcome(summary)}; the run is in {out}")


def outcome(summary: "AgentSummary") -> str:
    """What came of a run, in one sentence."""
    train, test = f"{summary.train.mean:.2f}", f"{summary.test.mean:.2f}"
    if summary.has_unseen:
        returns = f"{train} on training levels, {test} on unseen ones"
    else:
        returns = f"{train} and {test} in two evaluations on {summary.test.level_text}, which training had too"
    return (
        f"{summary.game} with {summary.method_text}, preset {summary.preset_name}, {summary.env_steps} steps: "
        f"{returns} ({summary.test.episodes} episodes each, {summary.test.protocol})"
    )


def _config(arguments: argparse.Namespace, device: str) -> "TrainConfig":
    """The settings of a new run."""
    import torch

    from clop.rl import methods
    from clop.rl.config import TrainConfig
    from clop.rl.games import is_procgen
    from clop.rl.methods import METHODS

    game = arguments.game or arguments.env_name
    if game is None:
        raise UsageError("which game? for example: clop train bigfish --method clop")
    if arguments.env_name not in (None, game):
        raise UsageError(f"one game at a time: got {game} and --env-name {arguments.env_name}")
    is_procgen(game)
    method = arguments.method or "ppo"
    active = list(methods.parse(method))
    refuse_inactive(arguments, METHODS, active, "add it with --method {name}")
    preset = arguments.preset or ("procgen-easy" if device.startswith("cuda") else "quick")
    changes = given(arguments, "train")
    for group in ("ppo", "network", *active):
        changes |= {f"{group}.{name}": value for name, value in given(arguments, group).items()}
    config = TrainConfig.preset(preset, game, method, **changes)
    processes = _processes(arguments.processes or "auto", config.ppo.num_envs, device)
    defaults = {
        "processes": processes,
        "threads": 1 if processes > 1 else torch.get_num_threads(),
        "test_every": max(1, config.total_timesteps // 10),
    }
    return config.changed(**(defaults | {name: value for name, value in changes.items() if name in defaults}))


def _layer_notes(config: "TrainConfig") -> list[str]:
    """What the authors' presets leave as in the paper: the layer, which their code has otherwise."""
    if not config.preset_name.startswith("authors-"):
        return []
    return [
        f"preset {config.preset_name}: the layer of {name} is the paper's; "
        f"that of the authors' code is {flag_of(name, 'variant')} raster"
        for name, settings in config.methods.items()
        if getattr(settings, "variant", None) == "paper"
    ]


def _refuse_overridden(arguments: argparse.Namespace, config: "TrainConfig") -> None:
    """A :class:`UsageError` for a setting that was asked for and that a method sets otherwise."""
    from clop.rl.build import edited_settings

    settings = edited_settings(config)
    for group in ("ppo", "network"):
        for name, value in given(arguments, group).items():
            used = getattr(getattr(settings, group), name)
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
