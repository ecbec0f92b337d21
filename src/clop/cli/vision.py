"""``clop vision``: classifiers from the paper's tables, and those tables."""

import argparse
import dataclasses
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from clop.cli.flags import add_group, find_device, given, integer, number, refuse_inactive, refuse_settings
from clop.errors import UsageError

_SETTINGS = ("network", "epochs", "image_size", "train_images", "batch_size", "learning_rate", "test_every", "seed")


def add_vision(commands: Any, words: Sequence[str]) -> None:
    if list(words[1:2]) == ["table"]:
        _add_table(commands)
        return
    from clop.vision.methods import METHODS
    from clop.vision.models import NETWORKS
    from clop.vision.tasks import TASKS

    parser: argparse.ArgumentParser = commands.add_parser(
        "vision",
        help="train a classifier as in the paper's tables",
        description="Train a network on a task, with any methods; what is not given is as in the paper. The run is a "
        "folder; killed at any moment, it goes on with --resume as if nothing had happened.",
        epilog="`clop vision table TASK RUNS…` prints the accuracies of existing runs beside the published ones. "
        "With --seeds, the same command goes on where it was stopped.",
    )
    parser.add_argument("task", nargs="?", help=", ".join(TASKS))
    parser.add_argument(
        "--method", default=None, metavar="NAME[+NAME]", help="plain, or " + ", ".join(METHODS) + " (default: plain)"
    )
    parser.add_argument("--position", type=integer, metavar="N", help="the same as --clop.position")
    parser.add_argument("--network", metavar="NAME", help=", ".join(NETWORKS) + " (default: the paper's)")
    parser.add_argument("--epochs", type=integer, metavar="N", help="default: the paper's")
    parser.add_argument("--image-size", type=integer, metavar="N", help="pixels of a side (default: the paper's)")
    parser.add_argument(
        "--train-images",
        type=integer,
        metavar="N",
        help="of the training images, the same for all seeds (default: all)",
    )
    parser.add_argument("--batch-size", type=integer, metavar="N", help="default: 64")
    parser.add_argument("--learning-rate", type=number, metavar="X", help="at the start (default: 0.0005)")
    parser.add_argument(
        "--test-every", type=integer, metavar="N", help="epochs between tests; 0 for the end only (default: 1)"
    )
    parser.add_argument(
        "--data",
        type=Path,
        metavar="FOLDER",
        help="that holds the data sets; what is missing is downloaded to the cache",
    )
    parser.add_argument("--seed", type=integer, metavar="N", help="default: 0")
    parser.add_argument(
        "--seeds", type=integer, metavar="N", help="as many runs, with seeds from --seed on, and a table"
    )
    parser.add_argument(
        "--out",
        type=Path,
        metavar="FOLDER",
        help="new folder for the run (default: runs/TASK-METHOD-SEED); with --seeds, for their folders",
    )
    parser.add_argument("--resume", type=Path, metavar="FOLDER", help="go on with the run, or runs, in this folder")
    parser.add_argument("--device", default=None, help="default: cuda if there is one, else cpu")
    parser.add_argument(
        "--checkpoint-minutes",
        type=number,
        default=10.0,
        metavar="X",
        help="between checkpoints (default: %(default)s)",
    )
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
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUNS", help="folders of runs, or folders that hold such")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the table to a Markdown file too")
    parser.add_argument("--figure", type=Path, metavar="FILE", help="draw accuracies beside the published bars")
    parser.add_argument("--depth-figure", type=Path, metavar="FILE", help="draw accuracy against the position of CLOP")
    parser.set_defaults(run=_table)


def _run(arguments: argparse.Namespace) -> None:
    from clop import machine
    from clop.experiments.vision import create_or_open, load_task, open_run, train_classifier
    from clop.vision.train import VisionConfig

    machine.keep_memory()
    device = find_device(arguments.device)
    tasks: dict[tuple[Any, ...], Any] = {}

    def task_of(config: VisionConfig) -> Any:
        key = (config.task, config.data, config.image_size, config.train_images)
        if key not in tasks:
            tasks[key] = load_task(config)
        return tasks[key]

    if arguments.resume is not None:
        refuse_settings(arguments, ("task",), (*_SETTINGS, "method", "position", "seeds", "out"))
        runs = [open_run(path, arguments.data) for path in _run_folders(arguments.resume)]
    else:
        wanted = _seeds(_config(arguments), arguments)
        task_of(wanted[0][1])  # before there is a folder, since images may be missing
        begin = _new if arguments.seeds is None else create_or_open
        runs = [(begin(path, config), config) for path, config in wanted]
    for folder, config in runs:
        task = task_of(config)
        summary = train_classifier(config, folder, task, device, 60 * arguments.checkpoint_minutes)
        tests = ", ".join(f"{summary[f'test_accuracy_{name}']:.1f} % on {name}" for name in task.tests)
        print(
            f"{config.task} with {summary['label']} ({summary['scale']}, seed {config.seed}): {tests}; training images "
            f"{summary['train_accuracy']:.1f} % in evaluation mode, {summary['running_accuracy']:.1f} % running in "
            f"training mode; the run is in {folder.path}"
        )
    if len(runs) > 1:
        from clop.report.vision import read_runs, table

        groups, _ = read_runs(runs[0][1].task, [folder.path for folder, _ in runs])
        print(f"\n{table(runs[0][1].task, groups)}", end="")


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
        if given(arguments, "clop").get("position", arguments.position) != arguments.position:
            raise UsageError("--position and --clop.position are the same setting; leave out one of them")
        setattr(arguments, "clop.position", arguments.position)
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


def _new(path: Path, config: Any) -> Any:
    from clop.experiments.run_folder import RunFolder
    from clop.experiments.vision import KIND

    return RunFolder.create(path, KIND, config.asdict())


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
