"""``clop report``: tables and figures from runs."""

import argparse
from pathlib import Path
from typing import Any

from clop.errors import UsageError


def add_report(commands: Any) -> None:
    parser: argparse.ArgumentParser = commands.add_parser(
        "report",
        help="tables and figures of the paper from runs",
        description="Write every table and figure of the paper that holds a measurement, ours beside published, from "
        "the runs at these paths and below; and aggregates with intervals, profiles and efficiency. What was not run "
        "is said with the command that would fill it; runs that are unfinished or damaged are listed.",
        epilog="example: clop report results --out report; clop report results --what table2",
    )
    parser.add_argument("paths", type=Path, nargs="+", metavar="RUNS", help="runs, sweeps, or folders that hold some")
    parser.add_argument(
        "--out", type=Path, default=Path("report"), metavar="FOLDER", help="folder to write (default: %(default)s)"
    )
    parser.add_argument(
        "--what",
        action="append",
        default=[],
        metavar="NAME",
        help="one table or figure, such as table2, figure10, outcomes or claims; may be given again (default: all)",
    )
    parser.set_defaults(run=_report)


def _report(arguments: argparse.Namespace) -> None:
    try:
        from clop.report.build import TABLES, build, found_text
        from clop.report.evidence import EVIDENCE_TABLES
    except ModuleNotFoundError as error:
        if error.name != "scipy":
            raise
        raise UsageError('reports need scipy, which is not installed: pip install "clop[report]"') from None
    report = build(arguments.paths, arguments.out, arguments.what)
    for name in arguments.what:
        if name in (*TABLES, *EVIDENCE_TABLES):
            print((arguments.out / "tables" / f"{name}.md").read_text())
        elif name == "claims":
            print((arguments.out / "claims.md").read_text())
    print(found_text(report.runs))
    for problem in report.runs.problems:
        print(f"{problem.kind}: {problem.path}, {problem.text}")
    print(f"wrote {len(report.written)} files to {arguments.out}")
