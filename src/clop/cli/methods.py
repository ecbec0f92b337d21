"""``clop methods``: every method with its paper, its settings and the published column it reproduces."""

import argparse
import dataclasses
import textwrap
from typing import Any

_BESIDES = {
    "ppo": "Proximal policy optimisation as on Procgen (Schulman et al., 2017; Cobbe et al., 2020).",
    "idaac+clop": "CLOP in the policy network of IDAAC (Bertoin and Rachelson, 2022).",
}
"""What has published numbers and no settings of its own."""


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

    known = ["ppo", *METHODS, "idaac+clop"]
    if arguments.name is not None and arguments.name not in known:
        raise UsageError(one_of("method", arguments.name, known))
    for name in known if arguments.name is None else [arguments.name]:
        columns = columns_of(name)
        published = f"published by Bertoin and Rachelson: {'; '.join(columns)}" if columns else "published: nowhere"
        if name in _BESIDES:
            _print(name, _BESIDES[name], [published])
            continue
        config = METHODS[name]
        fields = [(field.name, _default(field.default)) for field in dataclasses.fields(config)]  # type: ignore[arg-type]
        if arguments.name is None:
            settings = ["settings: " + ", ".join(f"{field} {default}" for field, default in fields)]
        else:
            texts = field_texts(config)
            settings = [f"--{name}.{field} (default: {default}): {texts.get(field, '')}" for field, default in fields]
            settings = [text.replace("_", "-", text.split(" ")[0].count("_")) for text in settings]
        _print(name, first_line(config), [*settings, published])


def _print(name: str, about: str, lines: list[str]) -> None:
    print(f"{name:<18}{about}")
    for line in lines:
        print(textwrap.fill(line, 116, initial_indent=" " * 18, subsequent_indent=" " * 20))


def _default(value: Any) -> str:
    return "auto" if value is None else str(value)
