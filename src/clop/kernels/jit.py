"""Numba's decorators as this package uses them: compiled code is kept on disk wherever a folder can be written."""

import functools
import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
from numba import types

_SOURCES = hashlib.sha256(
    b"".join(path.read_bytes() for path in sorted(Path(__file__).parent.glob("*.py")))
).hexdigest()


def _cached(decorator: Callable[..., Any]) -> Callable[[Callable[..., Any]], Any]:
    def decorate(function: Callable[..., Any]) -> Any:
        # Numba compiles anew when the file of a function has changed, but not when one of those it calls has. Its files
        # have the function's name.
        function.__qualname__ += f"_{_SOURCES[:8]}"
        try:
            return decorator(cache=True)(function)
        except RuntimeError:  # neither the package's folder nor the user's cache is writable
            return decorator()(function)

    return decorate


jit = _cached(functools.partial(numba.njit, nogil=True))
"""A compiled function that Python and other compiled functions call."""

callback = _cached(functools.partial(numba.cfunc, types.void(types.CPointer(types.int64))))
"""A compiled function that C calls with one pointer to 64-bit words."""
