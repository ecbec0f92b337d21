"""``clop saliency``: what trained networks look at."""

import argparse
from pathlib import Path
from typing import Any

from clop.cli.flags import integer
from clop.errors import UsageError


def add_saliency(commands: Any) -> None:
    parser: argparse.ArgumentParser = commands.add_parser(
        "saliency",
        help="what trained agents look at",
        description="Show by Grad-CAM what raises a score of agents on the same frames, one column for each run, or "
        "measure over many frames how concentrated that is, beside networks with random weights. In evaluation mode, "
        "so CLOP is off. Runs of classifiers work too.",
        epilog="example: clop saliency runs/bigfish-clop-0 runs/bigfish-ppo-0 --out looks.png --measure looks.json",
    )
    parser.add_argument(
        "run_folders", type=Path, nargs="+", metavar="FOLDER", help="runs on one game, or a folder of them"
    )
    parser.add_argument("--out", type=Path, metavar="FILE", help="picture to write, such as looks.png")
    parser.add_argument(
        "--measure", type=Path, metavar="FILE", help="record of the numbers to write, such as looks.json"
    )
    parser.add_argument(
        "--split",
        choices=("train", "test"),
        default="test",
        help="levels seen in training, or unseen ones (default: %(default)s)",
    )
    parser.add_argument(
        "--frames", type=integer, metavar="N", help="number of frames (default: 16 in a picture, 1000 for numbers)"
    )
    parser.add_argument(
        "--target",
        choices=("logit", "log_prob", "value"),
        default="logit",
        help="score: logit or log-probability of the most probable action, or the value (default: %(default)s)",
    )
    parser.add_argument(
        "--stage", metavar="NAME", help="stage of the encoder behind which the map is (default: the last)"
    )
    parser.add_argument(
        "--seed", type=integer, default=0, metavar="N", help="seed of levels and actions (default: %(default)s)"
    )
    parser.set_defaults(run=_saliency)


def _saliency(arguments: argparse.Namespace) -> None:
    from clop.experiments.saliency import SaliencyConfig, find_runs, look, measure
    from clop.picture import write_picture
    from clop.report.saliency import table
    from clop.rl.pictures.grid import draw_grid
    from clop.rl.saliency import HEAT_TEXTS

    if arguments.out is None and arguments.measure is None:
        raise UsageError("nothing to do: name a picture with --out, or a record with --measure")

    runs = find_runs(arguments.run_folders)

    def config(frames: int) -> SaliencyConfig:
        asked = frames if arguments.frames is None else arguments.frames
        return SaliencyConfig(arguments.split, asked, arguments.target, arguments.stage, arguments.seed)

    if arguments.out is not None:
        frames, maps = look(runs, config(16))
        write_picture(draw_grid(frames.pixels, maps, HEAT_TEXTS[arguments.target]), arguments.out)
        print(f"wrote {arguments.out}")
    if arguments.measure is not None:
        record = measure(runs, config(1000))
        record.write(arguments.measure)
        print(table(record))
        print(f"wrote {arguments.measure}")
