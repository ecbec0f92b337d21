"""``clop methods``: every method with its paper, its settings and the published column it reproduces."""

import argparse
import dataclasses
import textwrap
from typing import Any

from clop.cli.flags import field_texts, first_line, flag_of

_BESIDES = {
    "ppo": "Proximal policy optimisation as on Procgen (Schulman et al., 2017; Cobbe et al., 2020).",
    "idaac+clop": "CLOP in the policy network of IDAAC (Bertoin and Rachelson, 2022).",
}
"""What has published numbers and no settings of its own."""

_UNPUBLISHED = "published by Bertoin and Rachelson: in none of their tables of agents"


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
    from clop.errors import UsageError, unknown_name
    from clop.report.published import columns_of
    from clop.rl.methods import METHODS

    known = ["ppo", *METHODS, "idaac+clop"]
    if arguments.name is not None and arguments.name not in known:
        raise UsageError(unknown_name("method", arguments.name, known))
    for name in known if arguments.name is None else [arguments.name]:
        columns = columns_of(name)
        published = f"published by Bertoin and Rachelson: {'; '.join(columns)}" if columns else _UNPUBLISHED
        if name in _BESIDES:
            _print(name, _BESIDES[name], [published])
            continue
        config = METHODS[name]
        defaults = {field.name: field.default for field in dataclasses.fields(config)}  # type: ignore[arg-type]
        if arguments.name is None:
            settings = ["settings: " + ", ".join(f"{field} {_text(value)}" for field, value in defaults.items())]
        else:
            texts = field_texts(config)
            settings = [
                f"{_shown(name, field, value)} (default: {_text(value)}) {texts.get(field, '')}".rstrip()
                for field, value in defaults.items()
            ]
        _print(name, first_line(config), [*settings, published])


def _print(name: str, about: str, lines: list[str]) -> None:
    print(f"{name:<18}{about}")
    for line in lines:
        print(textwrap.fill(line, 116, initial_indent=" " * 18, subsequent_indent=" " * 20))


def _shown(name: str, field: str, default: Any) -> str:
    """The flag, as it is typed; one that is on or off has two forms."""
    flag = flag_of(name, field)
    return flag.replace("--", "--[no-]", 1) if isinstance(default, bool) else flag


def _text(default: Any) -> str:
    return "auto" if default is None else str(default)
