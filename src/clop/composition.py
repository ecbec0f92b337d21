"""Methods that are composed by their names: ``dropout+clop``."""

from collections.abc import Collection

from clop.errors import UsageError, unknown_name


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
