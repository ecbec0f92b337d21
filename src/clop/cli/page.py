"""``clop page``: results, videos and the live layer as a page that opens from the disk."""

import argparse
from pathlib import Path
from typing import Any


def add_page(commands: Any) -> None:
    parser: argparse.ArgumentParser = commands.add_parser(
        "page",
        help="a page of runs to open in a browser",
        description="Write a folder whose index.html opens by a double click: the layer to play with, curves and "
        "tables with intervals, each number with its command, commit, machine and seed, and videos. It needs no "
        "server and asks for nothing.",
        epilog="example: clop page results/ --out site/",
    )
    parser.add_argument(
        "paths", type=Path, nargs="*", metavar="PATH", help="runs, sweeps, reports, records, videos, or folders of them"
    )
    parser.add_argument("--out", type=Path, default=Path("site"), help="folder to write (default: %(default)s)")
    parser.add_argument(
        "--film", action="store_true", help="film agents that have checkpoints, side by side on the same unseen level"
    )
    parser.set_defaults(run=_page)


def _page(arguments: argparse.Namespace) -> None:
    from clop.report.page.build import write_page
    from clop.report.page.videos import FOLDER

    if arguments.film:
        from clop.experiments.films import film_runs

        film_runs(arguments.paths, arguments.out / FOLDER)
    page = write_page(arguments.paths, arguments.out)
    runs = "no run" if page.runs == 0 else "one run" if page.runs == 1 else f"{page.runs} runs"
    films = {0: "", 1: " and a video"}.get(page.videos, f" and {page.videos} videos")
    print(f"wrote the page of {runs}{films}; open {page.path.resolve()}")
