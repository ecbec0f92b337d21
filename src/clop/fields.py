"""Fields of dataclasses as people write them: names with a suggestion, values of the declared type."""

import ast
import dataclasses
import types
import typing
from collections.abc import Mapping
from typing import Any

from clop.errors import UsageError, unknown_name


def checked(config: type[Any], values: Mapping[str, Any], group: str = "") -> dict[str, Any]:
    """Values for fields of a dataclass, as keyword arguments; a :class:`UsageError` for a name or type it has not.

    Args:
        config: The dataclass.
        values: By field.
        group: The name the dataclass goes by, for messages.
    """
    hints = typing.get_type_hints(config)
    known = [field.name for field in dataclasses.fields(config)]
    prefix = f"{group}." if group else ""
    result = {}
    for name, value in values.items():
        if name not in known:
            raise UsageError(unknown_name("setting", prefix + name, [prefix + field for field in known]))
        result[name] = _checked(prefix + name, value, hints[name])
    return result


def whole(config: type[Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Values for the fields of a dataclass as a file has them, with none missing: when the file was written, the
    default of a field that it lacks may have been another, or what it says now may have gone without saying."""
    missing = [field.name for field in dataclasses.fields(config) if field.name not in values]
    if missing:
        raise TypeError(f"{config.__name__} lacks {', '.join(missing)}")
    return dict(values)


def _checked(name: str, value: Any, hint: Any) -> Any:
    is_union = typing.get_origin(hint) in (types.UnionType, typing.Union)  # the latter for Literal[…] | None
    options = typing.get_args(hint) if is_union else (hint,)
    if value is None and type(None) in options:
        return None
    (kind, *_) = (option for option in options if option is not type(None))
    if typing.get_origin(kind) is typing.Literal:
        if value not in typing.get_args(kind):
            raise UsageError(unknown_name(name, value, map(str, typing.get_args(kind))))
        return value
    if typing.get_origin(kind) is tuple:
        if not isinstance(value, list | tuple):
            raise UsageError(f"{name}: expected a list, got {value!r}")
        return tuple(_checked(name, part, typing.get_args(kind)[0]) for part in value)
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if kind is int and isinstance(value, float) and value.is_integer():
        return int(value)
    if not isinstance(kind, type):
        return value
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        words = {int: "an integer", float: "a number", bool: "true or false", str: "a name"}
        raise UsageError(f"{name}: expected {words.get(kind, kind.__name__)}, got {value!r}")
    return value


def parse_call(text: str) -> tuple[str, dict[str, Any]]:
    """``clop(alpha=0.3, per_sample=true)`` as a name and its settings; a value that is no number is a name itself."""
    name, bracket, inside = text.strip().partition("(")
    if not bracket:
        return name.strip(), {}
    if not inside.endswith(")"):
        raise UsageError(f"{text!r} lacks its closing bracket; write for example clop(alpha=0.3)")
    settings: dict[str, Any] = {}
    for part in filter(None, (part.strip() for part in inside[:-1].split(","))):
        key, equals, value = (word.strip() for word in part.partition("="))
        if not equals:
            raise UsageError(f"{part!r} in {text!r} is no setting; write for example clop(alpha=0.3)")
        if key in settings:
            raise UsageError(f"{key} is set twice in {text!r}")
        settings[key] = _value(value)
    return name.strip(), settings


def _value(text: str) -> Any:
    words = {"true": True, "false": False, "none": None}
    if text.lower() in words:
        return words[text.lower()]
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def split_outside_brackets(text: str, separator: str) -> list[str]:
    """The parts between separators that stand in no bracket."""
    parts, depth = [""], 0
    for letter in text:
        depth += (letter == "(") - (letter == ")")
        if letter == separator and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return parts
