"""``clop bench``: flags to a benchmark."""

import argparse
import dataclasses
import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clop.cli.flags import positive

if TYPE_CHECKING:
    from clop.bench.timing import Row
    from clop.experiments.record import RecordBuilder


def add_bench(commands: Any, parser_class: type[argparse.ArgumentParser]) -> None:
    bench = commands.add_parser(
        "bench", help="measure speeds", description="Measure speeds, as ratios to named baselines."
    )
    benches = bench.add_subparsers(
        title="what to measure", metavar="what", dest="what", required=True, parser_class=parser_class
    )
    _add_layer(benches)
    _add_train(benches)
    _add_methods(benches)
    _add_vision(benches)
    _add_augment(benches)
    _add_pixels(benches)


def _add_common(parser: argparse.ArgumentParser, run: Callable[[argparse.Namespace], None]) -> None:
    parser.add_argument("--json", action="store_true", help="print the run record as JSON")
    parser.set_defaults(run=run)


def _add_layer(benches: Any) -> None:
    parser: argparse.ArgumentParser = benches.add_parser(
        "layer",
        help="the layer against copying, channel dropout and a Python loop",
        description="Time the layer, forward and backward in float32, in turns with copying the map and its gradient, "
        "with Dropout2d, and with a plain-Python layer that follows the authors' code. About half a minute.",
    )
    _add_comparison(parser, _bench_layer)


def _add_comparison(parser: argparse.ArgumentParser, run: Callable[[argparse.Namespace], None]) -> None:
    parser.add_argument("--rounds", type=positive, default=100, help="turns for each comparison (default: %(default)s)")
    parser.add_argument("--threads", type=positive, help="threads torch may use (default: all cores)")
    _add_common(parser, run)


def _add_train(benches: Any) -> None:
    parser: argparse.ArgumentParser = benches.add_parser(
        "train",
        help="the learner: steps per second, where the time goes, and against Stable-Baselines3",
        description="Time PPO on a game in turns: ours in one process and in one for each core, with CLOP, matrix "
        "products for the machine's peak, and Stable-Baselines3's PPO with the same network and settings. A turn is "
        "one rollout in 64 envs, played and learnt. About ten minutes.",
    )
    parser.add_argument("game", nargs="?", default="starpilot", help="default: %(default)s")
    parser.add_argument("--rounds", type=positive, default=2, help="turns of each (default: %(default)s)")
    parser.add_argument(
        "--num-steps", type=positive, default=64, help="of a rollout (default: %(default)s; procgen-easy has 256)"
    )
    parser.add_argument(
        "--pairs",
        type=positive,
        default=40,
        help="turns with and without CLOP (default: %(default)s)",
    )
    parser.add_argument("--without-sb3", action="store_true", help="leave Stable-Baselines3 out, which is slow")
    _add_common(parser, _bench_train)


def _add_methods(benches: Any) -> None:
    parser: argparse.ArgumentParser = benches.add_parser(
        "methods",
        help="what each method costs in an update",
        description="Time updates with each method in turns with plain PPO's, beside what the forward and backward "
        "passes of its definition explain. About ten minutes.",
    )
    parser.add_argument("game", nargs="?", default="starpilot", help="default: %(default)s")
    parser.add_argument("--rounds", type=positive, default=9, help="turns of each (default: %(default)s)")
    _add_common(parser, _bench_methods)


def _add_vision(benches: Any) -> None:
    parser: argparse.ArgumentParser = benches.add_parser(
        "vision",
        help="the classifier's training loop against a plain one",
        description="Time training of the small CNN in turns: our loop, the same with CLOP, and a plain loop (NCHW, "
        "DataLoader, the C library's defaults), each in a process of its own. About three minutes.",
    )
    parser.add_argument("--rounds", type=positive, default=20, metavar="N", help="turns (default: %(default)s)")
    parser.add_argument(
        "--batches", type=positive, default=25, metavar="N", help="of 64 in a turn (default: %(default)s)"
    )
    parser.add_argument("--threads", type=positive, metavar="N", help="threads torch may use (default: all cores)")
    _add_common(parser, _bench_vision)


def _add_augment(benches: Any) -> None:
    parser: argparse.ArgumentParser = benches.add_parser(
        "augment",
        help="what augmentations and CLOP cost, as the paper's table",
        description="Time one forward pass in training mode over MNIST (small CNN) and Imagenette (VGG9, 96 px) "
        "without a method, with each augmentation of the input and with CLOP, in turns. About ten minutes.",
    )
    parser.add_argument("--data", type=Path, metavar="FOLDER", help="that holds the data sets")
    parser.add_argument("--images", type=positive, metavar="N", help="of each data set (default: all)")
    parser.add_argument(
        "--image-size", type=positive, default=96, metavar="N", help="of Imagenette (default: %(default)s; paper: 224)"
    )
    parser.add_argument(
        "--network", default="vgg9", metavar="NAME", help="for Imagenette (default: %(default)s; paper: vgg11)"
    )
    parser.add_argument("--passes", type=positive, default=1, metavar="N", help="default: %(default)s")
    parser.add_argument("--threads", type=positive, metavar="N", help="threads torch may use (default: all cores)")
    _add_common(parser, _bench_augment)


def _add_pixels(benches: Any) -> None:
    parser: argparse.ArgumentParser = benches.add_parser(
        "pixels",
        help="our augmentations against kornia's",
        description="Time augmentations of a micro-batch of frames, from bytes to the floats that the network takes, "
        "in turns with kornia's. About a minute.",
    )
    _add_comparison(parser, _bench_pixels)


def _bench_layer(arguments: argparse.Namespace) -> None:
    from clop.bench import layer

    _compare(arguments, layer.run)


def _bench_pixels(arguments: argparse.Namespace) -> None:
    from clop import machine
    from clop.bench import pixels

    machine.keep_memory()
    _compare(arguments, pixels.run)


def _compare(arguments: argparse.Namespace, run: "Callable[[int, Callable[[Row], None]], list[Row]]") -> None:
    """Time ours against baselines, a row for each."""
    import torch

    from clop.experiments.record import RecordBuilder

    if arguments.threads is not None:
        torch.set_num_threads(arguments.threads)
    watch = RecordBuilder(f"bench {arguments.what}", {"rounds": arguments.rounds, "threads": torch.get_num_threads()})
    rows = run(arguments.rounds, lambda row: print(f"measured {row.what} against {row.baseline}", file=sys.stderr))
    cells = [
        [row.what, f"{row.ours_ms:.3f}", row.baseline, f"{row.baseline_ms:.3f}", f"{row.ratio:.2f}"] for row in rows
    ]
    _report(arguments, watch, rows, ["what", "ours, ms", "baseline", "baseline, ms", "ours / baseline"], cells)


def _bench_train(arguments: argparse.Namespace) -> None:
    import torch

    from clop import machine
    from clop.bench import train
    from clop.experiments.record import RecordBuilder

    def tell(text: str) -> None:
        print(text, file=sys.stderr)

    machine.keep_memory()
    torch.set_num_threads(1)
    cores = os.cpu_count() or 1
    names = ("game", "rounds", "num_steps", "pairs")
    settings = {name: getattr(arguments, name) for name in names} | {"cores": cores}
    watch = RecordBuilder("bench train", settings)
    costs = {}
    for topology in ("shared", "split"):
        tell(f"CLOP on and off in {arguments.pairs} pairs of turns, topology {topology}")
        costs[topology] = train.cost_of("clop", arguments.game, arguments.pairs, topology)
    rows = train.run(
        arguments.game, arguments.rounds, arguments.num_steps, cores, not arguments.without_sb3, on_turn=tell
    )

    def percent(share: float | None) -> str:
        return "" if share is None else f"{share:.0%}"

    header = ["learner", "steps/s", "games", "acting", "learning", "share of peak", "memory, GB"]
    cells = [
        [
            row.what,
            f"{row.steps_per_second:.0f}",
            *map(percent, (row.env_share, row.act_share, row.learn_share, row.share_of_peak)),
            f"{row.memory_gb:.2f}",
        ]
        for row in rows
    ]
    ratios = ", ".join(f"{cost:.3f} ({topology} network)" for topology, cost in costs.items())
    note = (
        f"{arguments.game}, rollouts of 64×{arguments.num_steps}, 3 epochs, 8 minibatches, {arguments.rounds} turns\n"
        f"time with CLOP over time without, one process, median of {arguments.pairs} pairs: {ratios}"
    )
    _report(arguments, watch, rows, header, cells, note, cost_of_clop=costs)


def _bench_methods(arguments: argparse.Namespace) -> None:
    import torch

    from clop import machine
    from clop.bench import methods
    from clop.experiments.record import RecordBuilder

    machine.keep_memory()
    torch.set_num_threads(1)
    settings = {"game": arguments.game, "rounds": arguments.rounds}
    watch = RecordBuilder("bench methods", settings)
    rows = methods.run(**settings, on_round=lambda turn: print(f"turn {turn} of {arguments.rounds}", file=sys.stderr))
    cells = [
        [
            row.method,
            f"{row.passes.both} + {row.passes.forward}",
            f"{row.explained:.2f}",
            f"{row.ratio:.2f}",
            f"{row.quartiles[0]:.2f} to {row.quartiles[1]:.2f}",
            f"{row.excess:.2f}",
        ]
        for row in rows
    ]
    note = (
        f"updates on {arguments.game}, one thread, medians of {arguments.rounds} rounds; passes of an image, with a "
        "gradient and without, by definition: PPO's are 3 + 0; batch norm's through its own layers, as timed bare"
    )
    heads = ["method", "passes", "by its passes", "time / PPO's", "quartiles", "beyond them"]
    _report(arguments, watch, rows, heads, cells, note)


def _bench_vision(arguments: argparse.Namespace) -> None:
    import torch

    from clop.bench import vision
    from clop.experiments.record import RecordBuilder

    threads = arguments.threads or torch.get_num_threads()
    settings = {"rounds": arguments.rounds, "batches": arguments.batches, "threads": threads}
    watch = RecordBuilder("bench vision", settings)
    rows = vision.run(**settings, on_round=lambda turn: print(f"turn {turn} of {arguments.rounds}", file=sys.stderr))
    header = ["loop", "images/s", "against", "speed, median", "quartiles"]
    cells = [
        [
            row.what,
            f"{row.images_per_second:.0f}",
            row.baseline or "",
            "" if row.ratio is None else f"{row.ratio:.3f}",
            "" if row.quartiles is None else f"{row.quartiles[0]:.3f} to {row.quartiles[1]:.3f}",
        ]
        for row in rows
    ]
    note = f"small CNN, 32 px, batches of {vision.BATCH}, {threads} thread(s), {arguments.rounds} turns"
    _report(arguments, watch, rows, header, cells, note)


def _bench_augment(arguments: argparse.Namespace) -> None:
    import torch

    from clop import machine
    from clop.bench import augment
    from clop.experiments.record import RecordBuilder
    from clop.progress import Progress
    from clop.vision.tasks import load
    from clop.vision.train import paper_config

    machine.keep_memory()
    if arguments.threads is not None:
        torch.set_num_threads(arguments.threads)
    names = ("images", "image_size", "network", "passes")
    settings = {name: getattr(arguments, name) for name in names} | {"threads": torch.get_num_threads()}
    watch = RecordBuilder("bench augment", settings)
    configs = {  # all of them, so that a mistake is told before anything is timed
        "mnist": paper_config("mnist-usps"),
        "imagenette": paper_config("imagenette", network=arguments.network, image_size=arguments.image_size),
    }
    tasks = {
        dataset: load(config.task, arguments.data, config.image_size, arguments.images)
        for dataset, config in configs.items()
    }
    rows = []
    for dataset, task in tasks.items():
        with Progress(f"{dataset}, each method", arguments.passes * len(task.train), "images") as progress:
            rows += augment.run(dataset, task, configs[dataset].network, arguments.passes, progress.step)
    cells = [
        [
            row.dataset,
            row.method,
            f"{row.seconds:.2f}",
            f"{row.ratio:.3f}",
            "" if row.paper_seconds is None else f"{row.paper_seconds:g}",
            "" if row.paper_ratio is None else f"{row.paper_ratio:.3f}",
            row.scale,
        ]
        for row in rows
    ]
    header = ["data", "method", "seconds", "ratio to plain", "paper: seconds", "paper: ratio", "scale"]
    note = f"one forward pass in training mode, {settings['threads']} thread(s); the paper's was on a GPU"
    _report(arguments, watch, rows, header, cells, note)


def _report(
    arguments: argparse.Namespace,
    watch: "RecordBuilder",
    rows: Sequence[Any],
    header: Sequence[str],
    cells: Sequence[Sequence[str]],
    note: str = "",
    **more: Any,
) -> None:
    """Print what was measured: for machines the record, for people a table and a note."""
    from clop.report.tables import markdown

    if arguments.json:
        record = watch.record({"rows": [row.asdict() for row in rows], **more})
        print(json.dumps(dataclasses.asdict(record), indent=2, ensure_ascii=False))
        return
    print(markdown(header, cells))
    if note:
        print(note)
