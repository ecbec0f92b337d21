"""The command line. Commands import what they need when they run, so that ``clop --help`` is instant."""

import argparse
import dataclasses
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

import clop
from clop.cli.agents import add_evaluate, add_plot, add_watch
from clop.cli.bench import add_bench
from clop.cli.export import add_export
from clop.cli.flags import integer, positive
from clop.cli.methods import add_methods
from clop.cli.page import add_page
from clop.cli.report import add_report
from clop.cli.saliency import add_saliency
from clop.cli.sweep import add_sweep
from clop.cli.train import add_train
from clop.cli.vision import add_vision
from clop.errors import UsageError, unknown_name


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; the exit status is 0, or 2 for a mistake of the user."""
    words = _with_dashes(sys.argv[1:] if arguments is None else arguments)
    try:
        parsed = _parser(words).parse_args(words)
        parsed.run(parsed)
    except UsageError as error:
        print(f"clop: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        goes_on = "; the same command goes on where this one stopped" if words[:1] == ["demo"] else ""
        print(f"clop: interrupted{goes_on}", file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader of a pipe has left, as `| head` does
        sys.stderr.close()
    except OSError as error:
        where = f"{error.filename2 or error.filename}: " if error.filename is not None else ""
        print(f"clop: {where}{error.strerror or error}", file=sys.stderr)
        return 2
    return 0


class _Parser(argparse.ArgumentParser):
    """Raises a sentence where argparse would print its usage, and suggests names."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}; see {self.prog} --help")

    def _check_value(self, action: argparse.Action, value: object) -> None:
        if action.choices is not None and value not in action.choices:
            raise UsageError(unknown_name(str(action.metavar or action.dest), value, map(str, action.choices)))


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
        "--size", type=positive, default=64, help="positions along the longer side (default: %(default)s)"
    )
    picture.add_argument(
        "--alpha", type=_probability, default=0.5, help="alpha of the second row (default: %(default)s)"
    )
    picture.add_argument("--seed", type=integer, default=0, help="seed of the permutations (default: %(default)s)")
    picture.set_defaults(run=_picture)

    add_bench(commands, _Parser, words)

    demo = commands.add_parser(
        "demo",
        help="classifiers and agents with and without CLOP, in about seven minutes",
        description="Train the paper's small CNN on handwritten digits drawn small, and test it on digits that fill "
        "the frame: plain, with dropout, with batch norm and with CLOP. Then train PPO with and without CLOP on the "
        "game starpilot, side by side on one core each, evaluate both on seen and unseen levels, and film them on the "
        "same unseen level. It ends with a page of all that, which opens in a browser. No download. Interrupted, it "
        "goes on.",
    )
    demo.add_argument("--out", type=Path, default=Path("demo"), help="folder to write (default: %(default)s)")
    demo.add_argument("--epochs", type=positive, default=15, help="epochs on the digits (default: %(default)s)")
    demo.add_argument("--steps", type=positive, default=250_000, help="env steps of each agent (default: %(default)s)")
    demo.add_argument("--seed", type=integer, default=0, help="seed of all runs (default: %(default)s)")
    demo.set_defaults(run=_demo)

    if "train" in words[:1]:
        add_train(commands)  # its flags are those of all methods, whose import takes a second
    else:
        commands.add_parser("train", help="train an agent on a game")
    if "vision" in words[:1]:
        add_vision(commands, words)
    else:
        commands.add_parser("vision", help="train a classifier as in the paper's tables")
    add_sweep(commands)
    add_evaluate(commands)
    add_watch(commands)
    add_saliency(commands)
    add_page(commands)
    add_plot(commands)
    add_export(commands)
    add_methods(commands)
    add_report(commands)
    return parser


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


def _demo(arguments: argparse.Namespace) -> None:
    from clop import demo, demo_agents, machine
    from clop.report.page.build import write_page

    machine.keep_memory()
    print(demo.run(arguments.out, arguments.epochs, arguments.seed))
    print(demo_agents.run_both(arguments.out, arguments.steps, arguments.seed))
    game = demo_agents.GAME
    print(
        f"Tables (digits.md, {game}.md), figures (digits.png, {game}.png), a video of both agents on the same unseen "
        f"levels ({game}.mp4, {game}.webm) and the runs are in {arguments.out}"
    )
    page = write_page([arguments.out], arguments.out / "page")
    print(f"All of it is on a page, with the layer to play with; open {page.path.resolve()}")
