"""What a user can get wrong, and the sentences that say so."""

import difflib
import typing
from collections.abc import Iterable


class UsageError(ValueError):
    """A mistake of the user, in one sentence: what was expected, what came, what to do.

    The command line prints the sentence and exits with status 2; anything else that is raised is a mistake of ours.
    """


class ResumableError(UsageError):
    """A run ended before its end by no mistake in its settings, and goes on from its last checkpoint."""


class StoppedError(ResumableError):
    """A run was asked to stop, and has."""


def unknown_name(what: str, given: object, known: Iterable[str]) -> str:
    """``unknown game 'bigfsh'; did you mean 'bigfish'?``, or the list of what is known if nothing is near."""
    known = list(known)
    near = difflib.get_close_matches(str(given), known, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"expected one of {', '.join(known)}"
    return f"unknown {what} {given!r}; {hint}"


class DivergedError(RuntimeError):
    """A loss or gradient is no longer a number."""


def check_choices(config: object, group: str, fields: Iterable[str]) -> None:
    """A :class:`UsageError` for a field of a dataclass whose value is none of those its ``Literal`` type lists."""
    hints = typing.get_type_hints(type(config))
    for field in fields:
        value, known = getattr(config, field), typing.get_args(hints[field])
        if value not in known:
            raise UsageError(unknown_name(f"{group}.{field}", value, known))
