"""The command line. Commands import what they need when they run, so that ``clop --help`` is instant."""

import argparse
import dataclasses
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import clop
from clop.cli.agents import add_evaluate, add_watch
from clop.cli.train import add_train
from clop.errors import UsageError, one_of

if TYPE_CHECKING:
    from clop.experiments.record import RunRecord


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; the exit status is 0, or 2 for a mistake of the user."""
    try:
        words = _with_dashes(sys.argv[1:] if arguments is None else arguments)
        parsed = _parser(words).parse_args(words, argparse.Namespace(command_line=words))
        parsed.run(parsed)
    except UsageError as error:
        print(f"clop: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("clop: interrupted; the same command goes on where this one stopped", file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader of a pipe has left, as `| head` does
        sys.stderr.close()
    return 0


class _Parser(argparse.ArgumentParser):
    """Raises a sentence where argparse would print its usage, and suggests names."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}; see {self.prog} --help")

    def _check_value(self, action: argparse.Action, value: object) -> None:
        if action.choices is not None and value not in action.choices:
            raise UsageError(one_of(str(action.metavar or action.dest), value, map(str, action.choices)))


def _with_dashes(words: Sequence[str]) -> list[str]:
    """Flags with dashes, however they were written: --num_levels is --num-levels."""
    return [
        "=".join([name.replace("_", "-"), *value]) if word.startswith("--") else word
        for word in words
        for name, *value in [word.split("=", 1)]
    ]


def _parser(words: Sequence[str]) -> argparse.ArgumentParser:
    parser = _Parser(
        prog="clop",
        description="CLOP, the channel-consistent local permutation layer, and experiments on generalisation.",
        epilog="Start with `clop doctor`, then `clop demo`.",
    )
    parser.add_argument("--version", action="version", version=f"clop {clop.__version__}")
    commands = parser.add_subparsers(
        title="commands", metavar="command", dest="command", required=True, parser_class=_Parser
    )

    doctor = commands.add_parser(
        "doctor",
        help="what is installed and works here",
        description="List what is installed, which parts of clop work here, and what to install for the others.",
    )
    doctor.add_argument("--json", action="store_true", help="print JSON for machines")
    doctor.set_defaults(run=_doctor)

    picture = commands.add_parser(
        "picture",
        help="see what the layer does to an image",
        description="Draw the paper's Figures 2 and 6 for an image: growing alpha, and the layer without locality and "
        "without channel consistency. Each pixel is one position of the map.",
        epilog="example: clop picture cat.jpg --out cat-swapped.png",
    )
    picture.add_argument("image", nargs="?", type=Path, help="image file; without one, a synthetic game frame")
    picture.add_argument("--out", type=Path, required=True, help="file to write, such as clop.png")
    picture.add_argument(
        "--size", type=_positive, default=64, help="positions along the longer side (default: %(default)s)"
    )
    picture.add_argument(
        "--alpha", type=_probability, default=0.5, help="alpha of the second row (default: %(default)s)"
    )
    picture.add_argument("--seed", type=int, default=0, help="seed of the permutations (default: %(default)s)")
    picture.set_defaults(run=_picture)

    bench = commands.add_parser(
        "bench", help="measure speeds", description="Measure speeds, as ratios to named baselines."
    )
    benches = bench.add_subparsers(
        title="what to measure", metavar="what", dest="what", required=True, parser_class=_Parser
    )
    layer = benches.add_parser(
        "layer",
        help="the layer against copying, channel dropout and a Python loop",
        description="Time the layer, forward and backward in float32, in turns with copying the map and its gradient, "
        "with Dropout2d, and with a plain-Python layer that follows the authors' code. About half a minute.",
    )
    layer.add_argument("--json", action="store_true", help="print the run record as JSON")
    layer.add_argument("--rounds", type=_positive, default=100, help="turns for each comparison (default: %(default)s)")
    layer.add_argument("--threads", type=_positive, help="threads torch may use (default: all cores)")
    layer.set_defaults(run=_bench_layer)
    train = benches.add_parser(
        "train",
        help="the learner: steps per second and where the time goes",
        description="Time PPO on a game without and with CLOP, in turns with a matrix product: milliseconds of an env "
        "step in the games, in acting and in learning, and the share of the machine's peak. About two minutes.",
    )
    train.add_argument("game", nargs="?", default="starpilot", help="default: %(default)s")
    train.add_argument("--json", action="store_true", help="print the run record as JSON")
    train.add_argument("--rounds", type=_positive, default=5, help="turns (default: %(default)s)")
    train.add_argument("--threads", type=_positive, default=1, help="threads torch may use (default: %(default)s)")
    train.set_defaults(run=_bench_train)

    demo = commands.add_parser(
        "demo",
        help="train a small network with and without CLOP, in about two minutes",
        description="Train the paper's small CNN on handwritten digits drawn small, and test it on digits that fill "
        "the frame: plain, with dropout, with batch norm and with CLOP. No download. Interrupted, it goes on later.",
    )
    demo.add_argument("--out", type=Path, default=Path("demo"), help="folder to write (default: %(default)s)")
    demo.add_argument("--epochs", type=_positive, default=15, help="default: %(default)s")
    demo.add_argument("--seed", type=int, default=0, help="default: %(default)s")
    demo.set_defaults(run=_demo)

    if "train" in words[:1]:
        add_train(commands)  # its flags are those of all methods, whose import takes a second
    else:
        commands.add_parser("train", help="train an agent on a Procgen game")
    add_evaluate(commands)
    add_watch(commands)
    return parser


def _positive(text: str) -> int:
    try:
        value = int(text.replace("_", ""))
    except ValueError:
        value = 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"expected an integer of at least 1, got {text!r}")
    return value


def _probability(text: str) -> float:
    try:
        return clop.functional.check_alpha(float(text))
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected a probability in [0, 1], got {text!r}") from None


def _doctor(arguments: argparse.Namespace) -> None:
    from clop import doctor, machine

    here, parts = machine.describe(), doctor.examine()
    if arguments.json:
        print(json.dumps({"machine": here, "parts": [dataclasses.asdict(part) for part in parts]}, indent=2))
        return
    versions = here.pop("versions")
    print(", ".join(f"{name} {version or 'not installed'}" for name, version in versions.items()))
    print(f"Python {here['python']}, {here['system']}")
    print(f"{here['processor']}, {here['cores']} cores, {here['memory_gb']} GB, {here['gpu'] or 'no GPU'}\n")
    width = max(len(part.name) for part in parts)
    for part in parts:
        print(f"{'works  ' if part.works else 'missing'}  {part.name:{width}}  {part.detail}")


def _picture(arguments: argparse.Namespace) -> None:
    from clop import picture

    image = picture.game_frame() if arguments.image is None else picture.read_image(arguments.image, arguments.size)
    picture.write_picture(picture.picture(image, arguments.alpha, arguments.seed), arguments.out)
    print(f"wrote {arguments.out}")


def _bench_layer(arguments: argparse.Namespace) -> None:
    import torch

    from clop.bench import layer
    from clop.experiments.record import Stopwatch
    from clop.report.tables import markdown

    if arguments.threads is not None:
        torch.set_num_threads(arguments.threads)
    watch = Stopwatch("bench layer", {"rounds": arguments.rounds, "threads": torch.get_num_threads()})
    rows = layer.run(
        arguments.rounds, lambda row: print(f"measured {row.what} against {row.baseline}", file=sys.stderr)
    )
    if arguments.json:
        _print_record(watch.record({"rows": [row.asdict() for row in rows]}))
        return
    cells = [
        [row.what, f"{row.ours_ms:.3f}", row.baseline, f"{row.baseline_ms:.3f}", f"{row.ratio:.2f}"] for row in rows
    ]
    print(markdown(["what", "ours, ms", "baseline", "baseline, ms", "ours / baseline"], cells))


def _print_record(record: "RunRecord") -> None:
    print(json.dumps(dataclasses.asdict(record), indent=2, ensure_ascii=False))


def _bench_train(arguments: argparse.Namespace) -> None:
    import torch

    from clop import machine
    from clop.bench import train
    from clop.experiments.record import Stopwatch
    from clop.report.tables import markdown

    machine.keep_memory()
    torch.set_num_threads(arguments.threads)
    config = {"game": arguments.game, "rounds": arguments.rounds, "threads": arguments.threads}
    watch = Stopwatch("bench train", config)
    rows = train.run(
        arguments.game, arguments.rounds, lambda turn: print(f"turn {turn} of {arguments.rounds}", file=sys.stderr)
    )
    if arguments.json:
        _print_record(watch.record({"rows": [row.asdict() for row in rows]}))
        return
    header = ["method", "steps/s", "games, ms", "acting, ms", "learning, ms", "share of peak"]
    cells = [
        [
            row.what,
            f"{row.steps_per_second:.0f}",
            *(f"{value:.2f}" for value in (row.env_ms, row.act_ms, row.learn_ms)),
            f"{row.share_of_peak:.0%}",
        ]
        for row in rows
    ]
    print(markdown(header, cells))
    print(f"peak: {rows[0].peak_gflops:.0f} GFLOP/s, {arguments.threads} thread(s), {arguments.game}, 3 epochs")


def _demo(arguments: argparse.Namespace) -> None:
    from clop import demo, machine

    machine.keep_memory()
    print(demo.run(arguments.out, arguments.epochs, arguments.seed))
    print(f"The table, its figure (digits.png) and the records are in {arguments.out}")
