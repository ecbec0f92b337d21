"""``clop vision``: classifiers from the paper's tables, and those tables."""

import argparse
import dataclasses
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args

from clop.cli.flags import add_group, add_track, find_device, given, integer, number, refuse_inactive, refuse_settings
from clop.errors import UsageError

_SETTINGS = (
    *("network", "dense_init", "epochs", "image_size", "train_images", "batch_size", "learning_rate", "test_every"),
    "seed",
)


def add_vision(commands: Any, words: Sequence[str]) -> None:
    if list(words[1:2]) == ["table"]:
        _add_table(commands)
        return
    from clop.vision.methods import METHODS
    from clop.vision.models import NETWORKS, DenseInit
    from clop.vision.tasks import TASKS

    parser: argparse.ArgumentParser = commands.add_parser(
        "vision",
        help="train a classifier as in the paper's tables",
        description="Train a network on a task, with any methods; what is not given is as in the paper. The run is a "
        "folder. A run that was interrupted goes on bit for bit with --resume, or by the same command.",
        epilog="`clop vision table TASK RUNS…` prints the accuracies of existing runs beside the published ones.",
    )
    parser.add_argument("task", nargs="?", help=", ".join(TASKS))
    parser.add_argument("--method", metavar="NAME[+NAME]", help="plain, or " + ", ".join(METHODS) + " (default: plain)")
    parser.add_argument(
        *("--position", "--clop.position"),
        dest="position",
        type=integer,
        metavar="N",
        help="old names of --clop.slot: 2 stands for stage2",
    )
    parser.add_argument("--network", metavar="NAME", help=", ".join(NETWORKS) + " (default: the paper's)")
    parser.add_argument(
        "--dense-init",
        choices=get_args(DenseInit),
        help="initial weights of the dense layers: those of nn.Linear, or of torchvision's VGGs (default: pytorch, as "
        "in the authors' code)",
    )
    parser.add_argument(
        "--epochs", type=integer, metavar="N", help="number of passes over the images (default: the paper's)"
    )
    parser.add_argument("--image-size", type=integer, metavar="N", help="pixels of a side (default: the paper's)")
    parser.add_argument(
        "--train-images",
        type=integer,
        metavar="N",
        help="number of training images, the same ones for all seeds (default: all)",
    )
    parser.add_argument("--batch-size", type=integer, metavar="N", help="images of a batch (default: 64)")
    parser.add_argument("--learning-rate", type=number, metavar="X", help="rate of the first epoch (default: 0.0005)")
    parser.add_argument(
        "--test-every", type=integer, metavar="N", help="epochs between tests; 0 for the end only (default: 1)"
    )
    parser.add_argument(
        "--data",
        type=Path,
        metavar="FOLDER",
        help="folder that holds the data sets; what is missing is downloaded to the cache",
    )
    parser.add_argument("--seed", type=integer, metavar="N", help="seed of all random numbers (default: 0)")
    parser.add_argument(
        "--seeds", type=integer, metavar="N", help="number of runs, with seeds from --seed on, and a table of them"
    )
    parser.add_argument(
        "--out",
        type=Path,
        metavar="FOLDER",
        help="folder of the run (default: runs/TASK-METHOD-SEED); with --seeds, of all runs",
    )
    parser.add_argument("--resume", type=Path, metavar="FOLDER", help="go on with the run, or runs, in this folder")
    parser.add_argument("--device", help="device to train on (default: cuda if there is one, else cpu)")
    parser.add_argument(
        "--checkpoint-minutes",
        type=number,
        default=10.0,
        metavar="X",
        help="minutes between checkpoints (default: %(default)s)",
    )
    add_track(parser)
    for name, config in METHODS.items():
        add_group(parser, name, config)
    parser.set_defaults(run=_run)


def _add_table(commands: Any) -> None:
    from clop.vision.tasks import TASKS

    parser: argparse.ArgumentParser = commands.add_parser(
        "vision",
        prog="clop vision table",
        description="Print the accuracies of existing runs, mean and standard deviation over seeds, beside the "
        "published ones, with the scale of each.",
    )
    parser.add_argument("table", choices=["table"], help=argparse.SUPPRESS)
    parser.add_argument("task", choices=list(TASKS), metavar="task", help=", ".join(TASKS))
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUNS", help="folders of runs, or folders above them")
    parser.add_argument("--out", type=Path, metavar="FILE", help="Markdown file to write the table to")
    parser.add_argument("--figure", type=Path, metavar="FILE", help="figure of accuracies beside the published ones")
    parser.add_argument("--depth-figure", type=Path, metavar="FILE", help="figure of accuracy against the slot of CLOP")
    parser.set_defaults(run=_table)


def _run(arguments: argparse.Namespace) -> None:
    from clop import machine
    from clop.experiments.vision import find_run, load_task, read_config, run

    machine.keep_memory()
    device = find_device(arguments.device)
    moved = None  # where the images of an earlier run lie now
    if arguments.resume is not None:
        refuse_settings(arguments, ("task",), (*_SETTINGS, "method", "position", "seeds", "out"))
        runs = [(path, read_config(path)) for path in _run_folders(arguments.resume)]
        moved = arguments.data
    else:
        runs = _seeds(_config(arguments), arguments)
    for path, config in runs:
        find_run(path, config, moved)  # so that other settings are reported before the first of them is trained
    tasks: dict[tuple[object, ...], Any] = {}  # so that all seeds share the images
    for path, config in runs:
        images = (config.task, config.data, config.image_size, config.train_images)
        if len(runs) > 1 and images not in tasks:
            tasks[images] = load_task(config, moved)
        seconds = 60 * arguments.checkpoint_minutes
        summary = run(
            config, path, device, data=moved, checkpoint_seconds=seconds, task=tasks.get(images), track=arguments.track
        )
        tests = ", ".join(f"{accuracy:.1f} % on {name}" for name, accuracy in summary.test_accuracy.items())
        print(
            f"{summary.task} with {summary.label} ({summary.scale}, seed {summary.seed}): {tests}; training images "
            f"{summary.train_accuracy:.1f} % in evaluation mode, {summary.running_accuracy:.1f} % running in "
            f"training mode; the run is in {path}"
        )
    if len(runs) > 1:
        from clop.report.vision import read_runs, table

        task = runs[0][1].task
        groups, _ = read_runs(task, [path for path, _ in runs])
        print(f"\n{table(task, groups)}", end="")


def _config(arguments: argparse.Namespace) -> Any:
    """The settings of a new run."""
    import torch

    from clop.vision import methods
    from clop.vision.methods import METHODS
    from clop.vision.tasks import recipe
    from clop.vision.train import paper_config

    if arguments.task is None:
        raise UsageError("which task? for example: clop vision digits --method clop")
    recipe(arguments.task)
    active = methods.names("plain" if arguments.method is None else arguments.method)
    if arguments.position is not None:
        if "slot" in given(arguments, "clop"):
            raise UsageError("--position is an old name of --clop.slot; leave out one of them")
        setattr(arguments, "clop.slot", f"stage{arguments.position}")
    refuse_inactive(arguments, METHODS, active, "add it with --method {name}")
    changes = {name: value for name in _SETTINGS if (value := getattr(arguments, name)) is not None}
    return paper_config(
        arguments.task,
        **changes,
        threads=torch.get_num_threads(),
        data=None if arguments.data is None else str(arguments.data),
        methods={name: METHODS[name](**given(arguments, name)) for name in active},
    )


def _seeds(config: Any, arguments: argparse.Namespace) -> list[tuple[Path, Any]]:
    """The runs that were asked for, and where they go."""
    name = f"{config.task}-{config.method}"
    if arguments.seeds is None:
        return [(arguments.out or Path("runs") / f"{name}-{config.seed}", config)]
    if arguments.seeds < 1:
        raise UsageError(f"--seeds: expected a number of at least 1, got {arguments.seeds}")
    out = arguments.out or Path("runs") / name
    seeds = range(config.seed, config.seed + arguments.seeds)
    return [(out / f"seed-{seed}", dataclasses.replace(config, seed=seed)) for seed in seeds]


def _run_folders(path: Path) -> list[Path]:
    """The folder of a run itself, or those of several seeds in it."""
    below = sorted(path.glob("seed-*"), key=lambda folder: (len(folder.name), folder.name))
    return below if below and not (path / "config.json").exists() else [path]


def _table(arguments: argparse.Namespace) -> None:
    from clop.files import write_atomic
    from clop.report.vision import accuracy_figure, depth_figure, read_runs, table

    groups, unfinished = read_runs(arguments.task, arguments.runs)
    for path in unfinished:
        print(f"clop: {path} has not come to its end and is left out", file=sys.stderr)
    text = table(arguments.task, groups)
    print(text, end="")
    if arguments.out is not None:
        write_atomic(arguments.out, lambda draft: draft.write_text(text))
    for path, draw in ((arguments.figure, accuracy_figure), (arguments.depth_figure, depth_figure)):
        if path is not None:
            draw(arguments.task, groups, path)
            print(f"wrote {path}")
