"""Methods that are composed by their names: ``dropout+clop(alpha=0.3)``."""

from collections.abc import Collection, Mapping
from typing import Any, TypeVar

from clop.errors import UsageError, unknown_name
from clop.fields import checked, parse_call, split_outside_brackets

_Config = TypeVar("_Config")


def parse_methods(text: str, known: Mapping[str, type[_Config]], none: str) -> dict[str, _Config]:
    """``dropout+clop(alpha=0.3)`` as settings by name; ``none`` stands for no method and has no settings."""
    calls = [parse_call(part) for part in split_outside_brackets(text, "+")]
    names = split_names("+".join(name for name, _ in calls), known, none)
    settings: dict[str, dict[str, Any]] = dict(calls)
    if settings.get(none):
        raise UsageError(f"{none} stands for no method and takes no settings, got {text!r}")
    return {name: known[name](**checked(known[name], settings[name], name)) for name in names}


def split_names(text: str, known: Collection[str], none: str) -> list[str]:
    """``dropout+clop`` as a list of known names; ``none`` stands for no method."""
    parts = [part.strip() for part in text.split("+")]
    for part in parts:
        if part != none and part not in known:
            raise UsageError(unknown_name("method", part, [none, *known]))
    chosen = [part for part in parts if part != none]
    if len(set(chosen)) < len(chosen):
        raise UsageError(f"a method is named twice in {text!r}")
    return chosen
