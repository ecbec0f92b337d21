"""``clop bench``: a command for each benchmark; its flags are its settings."""

import argparse
import dataclasses
import json
import sys
from collections.abc import Sequence
from functools import partial
from typing import Any

from clop.bench.registry import BENCHES
from clop.cli.flags import add_fields, read_fields


def add_bench(commands: Any, parser_class: type[argparse.ArgumentParser], words: Sequence[str]) -> None:
    bench = commands.add_parser(
        "bench", help="measure speeds", description="Measure speeds, as ratios to named baselines."
    )
    benches = bench.add_subparsers(
        title="benchmarks", metavar="benchmark", dest="benchmark", required=True, parser_class=parser_class
    )
    for name, entry in BENCHES.items():
        parser: argparse.ArgumentParser = benches.add_parser(name, help=entry.summary)
        if "bench" in words[:1] and name in words:
            _add_settings(parser, name, entry.load())  # whose import takes a second


def _add_settings(parser: argparse.ArgumentParser, name: str, module: Any) -> None:
    parser.description = module.DESCRIPTION
    add_fields(parser, module.Settings)
    parser.add_argument("--json", action="store_true", help="print the run record as JSON")
    parser.set_defaults(run=partial(_run, name, module))


def _run(name: str, module: Any, arguments: argparse.Namespace) -> None:
    from clop.experiments.record import RecordBuilder

    settings = read_fields(arguments, module.Settings)
    builder = RecordBuilder(f"bench {name}", settings.asdict())
    result = module.run(settings, partial(print, file=sys.stderr))
    if arguments.json:
        record = builder.record(result.metrics())
        print(json.dumps(dataclasses.asdict(record), indent=2, ensure_ascii=False))
    else:
        print(result.text())
