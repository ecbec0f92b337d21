"""Dataclasses as groups of dotted flags: each field is a flag, the text under it its help."""

import argparse
import ast
import dataclasses
import inspect
import math
import textwrap
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from clop.errors import UsageError

_SEPARATOR = "."
_NONE: Mapping[str, Any] = types.MappingProxyType({})


def add_group(
    parser: argparse.ArgumentParser,
    name: str,
    config: type[Any],
    aliases: Mapping[str, Sequence[str]] = _NONE,
    defaults: Mapping[str, str] = _NONE,
) -> None:
    """Flags ``--name.field`` for the fields of a dataclass; only those that are given appear in the result.

    Args:
        parser: Where the flags go.
        name: Of the group.
        config: The dataclass; the text under a field is the help of its flag.
        aliases: Second names of flags, by ``name.field``.
        defaults: What a setting is if it is not given, by ``name.field``, where that is not the field's own default.
    """
    group = parser.add_argument_group(f"{name}: {first_line(config).removesuffix('.')}")
    hints, texts = typing.get_type_hints(config), field_texts(config)
    for field in dataclasses.fields(config):
        flags = [flag_of(name, field.name), *(f"--{alias}" for alias in aliases.get(f"{name}.{field.name}", ()))]
        help_text = _phrase(texts.get(field.name, "")) + _shown(field, defaults.get(f"{name}.{field.name}"))
        _add_setting(group, flags, f"{name}{_SEPARATOR}{field.name}", hints[field.name], help_text)


def add_settings(
    parser: argparse.ArgumentParser,
    config: type[Any],
    left_out: Sequence[str],
    aliases: Mapping[str, Sequence[str]] = _NONE,
    defaults: Mapping[str, str] = _NONE,
) -> None:
    """Flags ``--field`` for the fields of a run's dataclass, in the group ``train`` of the result."""
    hints, texts = typing.get_type_hints(config), field_texts(config)
    for field in dataclasses.fields(config):
        if field.name not in left_out:
            flags = [f"--{name.replace('_', '-')}" for name in (field.name, *aliases.get(field.name, ()))]
            help_text = _phrase(texts.get(field.name, "")) + _shown(field, defaults.get(field.name))
            _add_setting(parser, flags, f"train{_SEPARATOR}{field.name}", hints[field.name], help_text)


def _shown(field: dataclasses.Field[Any], text: str | None) -> str:
    """What a setting is if it is not given."""
    if text is None and field.default not in (None, dataclasses.MISSING):
        text = str(field.default)
    return "" if text is None else f" (default: {text})"


def _add_setting(parser: Any, flags: Sequence[str], dest: str, hint: Any, help_text: str) -> None:
    """A flag that appears in the result only if it is given."""
    options = {"dest": dest, "default": argparse.SUPPRESS, "help": help_text}
    parser.add_argument(*flags, **(options | _options(hint)))


def add_track(parser: argparse.ArgumentParser) -> None:
    """``--track``, which says where metrics are shown besides the run's folder."""
    parser.add_argument(
        "--track",
        action="append",
        default=[],
        metavar="NAME",
        help="tracker that is shown the metrics too: wandb, or wandb-offline without network and account; "
        "TensorBoard events are always in the run's folder",
    )


def given(arguments: argparse.Namespace, name: str) -> dict[str, Any]:
    """The fields of a group that were set on the command line."""
    prefix = name + _SEPARATOR
    return {key.removeprefix(prefix): value for key, value in vars(arguments).items() if key.startswith(prefix)}


def refuse_inactive(arguments: argparse.Namespace, known: Mapping[str, Any], active: list[str], how: str) -> None:
    """A :class:`UsageError` for a flag of a group that is not in use."""
    for name in known:
        fields = given(arguments, name)
        if name not in active and fields:
            flag = flag_of(name, next(iter(fields)))
            raise UsageError(f"{flag} is a setting of {name}, which is not active here; {how.format(name=name)}")


def refuse_settings(
    arguments: argparse.Namespace, subjects: Sequence[str], names: Sequence[str], allowed: Sequence[str] = ()
) -> None:
    """A :class:`UsageError` for settings beside ``--resume``: a run goes on with those it began with.

    Args:
        arguments: What was given.
        subjects: Arguments that name what is trained.
        names: Of the other flags; those of groups are settings too.
        allowed: Of those in groups, the ones a run may go on with nevertheless, by group and field.
    """
    found = [getattr(arguments, name) for name in subjects]
    found += [f"--{name.replace('_', '-')}" for name in names if getattr(arguments, name) is not None]
    settings = [name for name in vars(arguments) if _SEPARATOR in name and name not in allowed]
    found += [f"--{name.removeprefix('train.').replace('_', '-')}" for name in settings]
    for text in filter(None, found):
        raise UsageError(f"a run goes on with the settings it began with; leave out {text} with --resume")


def positive(text: str) -> int:
    """An integer of at least 1."""
    if (value := integer(text)) < 1:
        raise argparse.ArgumentTypeError(f"expected an integer of at least 1, got {text!r}")
    return value


def integer(text: str) -> int:
    """An integer of 64 bits, written as 1000, 1_000 or 1e3."""
    try:
        exact: int | float = int(text.replace("_", ""))
    except ValueError:
        try:
            exact = float(text)
        except ValueError:
            exact = math.nan
    if not float(exact).is_integer() or abs(exact) >= 2**63:
        raise argparse.ArgumentTypeError(f"expected an integer, got {text!r}")
    return int(exact)


def number(text: str) -> float:
    """A number that is finite."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise argparse.ArgumentTypeError(f"expected a number, got {text!r}")
    return value


def find_device(name: str | None) -> str:
    """The device that was asked for, or the best there is; a :class:`UsageError` if nothing can be computed on it."""
    import torch

    name = name or ("cuda" if torch.cuda.is_available() else "cpu")
    try:
        torch.zeros(1, device=name).sum().item()
    except (RuntimeError, AssertionError, NotImplementedError):
        known = "cpu or cuda" if torch.cuda.is_available() else "cpu, since torch finds no GPU here"
        raise UsageError(f"--device: expected {known}, got {name!r}") from None
    return name


def flag_of(group: str, field: str) -> str:
    return f"--{group}{_SEPARATOR}{field}".replace("_", "-")


_PARSERS: dict[Any, Callable[[str], Any]] = {int: integer, float: number, str: str}


def _options(hint: Any) -> dict[str, Any]:
    """How argparse reads a value of this type."""
    if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union:
        (hint,) = (part for part in typing.get_args(hint) if part is not type(None))
    if typing.get_origin(hint) is typing.Literal:
        choices = typing.get_args(hint)
        if any("_" in choice for choice in choices):  # such as random_conv, which was random-conv
            return {"choices": choices, "type": lambda text: text.replace("-", "_")}
        return {"choices": choices}
    if hint is bool:
        return {"action": argparse.BooleanOptionalAction}
    return {"type": _PARSERS[hint], "metavar": {int: "N", float: "X", str: "NAME"}[hint]}


def first_line(config: type[Any]) -> str:
    """What a class says of itself."""
    return inspect.cleandoc(config.__doc__ or "").partition("\n")[0]


def field_texts(config: type[Any]) -> dict[str, str]:
    """The string under each field of a class, its own and inherited ones, read from the source."""
    texts: dict[str, str] = {}
    for base in reversed(config.__mro__):  # so that what a class says of an inherited field comes last and counts
        if dataclasses.is_dataclass(base):
            texts |= _own_field_texts(base)
    return texts


def _own_field_texts(config: type[Any]) -> dict[str, str]:
    (definition,) = ast.parse(textwrap.dedent(inspect.getsource(config))).body
    assert isinstance(definition, ast.ClassDef)
    texts = {}
    for field, following in zip(definition.body, definition.body[1:], strict=False):
        if not (isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)):
            continue
        if isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant):
            texts[field.target.id] = " ".join(str(following.value.value).replace("``", "").split())
    return texts


def add_fields(parser: argparse.ArgumentParser, config: type[Any]) -> None:
    """Flags ``--field`` for the fields of a dataclass, all of which have defaults; read with :func:`read_fields`.

    A field with ``metadata={"positional": True}`` is an optional argument instead, and a bool that is False by default
    is a switch.
    """
    hints, texts = typing.get_type_hints(config), field_texts(config)
    for field in dataclasses.fields(config):
        shown = "" if field.default in (None, False) else f" (default: {field.default})"
        options: dict[str, Any] = {"default": field.default, "help": _phrase(texts[field.name]) + shown}
        if field.metadata.get("positional"):
            parser.add_argument(field.name, nargs="?", **options)
        elif field.default is False:
            parser.add_argument(f"--{field.name.replace('_', '-')}", action="store_true", **options)
        else:
            parser.add_argument(f"--{field.name.replace('_', '-')}", **(options | _plain_options(hints[field.name])))


def read_fields(arguments: argparse.Namespace, config: type[Any]) -> Any:
    """The dataclass with the values of its flags."""
    return config(**{field.name: getattr(arguments, field.name) for field in dataclasses.fields(config)})


def _plain_options(hint: Any) -> dict[str, Any]:
    return {"type": Path, "metavar": "FOLDER"} if Path in typing.get_args(hint) else _options(hint)


def _phrase(text: str) -> str:
    """A docstring as a help text: a single sentence has neither capital nor full stop."""
    if text and ". " not in text and not text[:2].isupper():
        text = f"{text[0].lower()}{text[1:].removesuffix('.')}"
    return text.replace("%", "%%")
