"""``clop methods``: every method with its paper, its settings and the published column it reproduces."""

import argparse
import dataclasses
import textwrap
from typing import Any

_PPO = "Proximal policy optimisation as on Procgen (Schulman et al., 2017; Cobbe et al., 2020)."


def add_methods(commands: Any) -> None:
    parser: argparse.ArgumentParser = commands.add_parser(
        "methods",
        help="what clop train --method can be",
        description="List the methods: what each does and which paper it comes from, its settings with their defaults, "
        "and the published columns it reproduces. They compose: --method rad+clop.",
    )
    parser.add_argument("name", nargs="?", help="one method, with what its settings mean")
    parser.set_defaults(run=_methods)


def _methods(arguments: argparse.Namespace) -> None:
    from clop.cli.flags import field_texts, first_line
    from clop.errors import UsageError, one_of
    from clop.report.published import columns_of
    from clop.rl.methods import METHODS

    if arguments.name is not None and arguments.name not in METHODS:
        raise UsageError(one_of("method", arguments.name, METHODS))
    shown = METHODS if arguments.name is None else {arguments.name: METHODS[arguments.name]}
    if arguments.name is None:
        _print("ppo", _PPO, [f"published: {'; '.join(columns_of('ppo'))}"])
    for name, config in shown.items():
        fields = [(field.name, _default(field.default)) for field in dataclasses.fields(config)]  # type: ignore[arg-type]
        if arguments.name is None:
            settings = ["settings: " + ", ".join(f"{field} {default}" for field, default in fields)]
        else:
            texts = field_texts(config)
            settings = [f"--{name}.{field} (default: {default}): {texts.get(field, '')}" for field, default in fields]
            settings = [text.replace("_", "-", text.split(" ")[0].count("_")) for text in settings]
        columns = columns_of(name)
        _print(name, first_line(config), [*settings, f"published: {'; '.join(columns) or 'nowhere'}"])


def _print(name: str, about: str, lines: list[str]) -> None:
    print(f"{name:<18}{about}")
    for line in lines:
        print(textwrap.fill(line, 116, initial_indent=" " * 18, subsequent_indent=" " * 20))


def _default(value: Any) -> str:
    return "by game or network" if value is None else str(value)
