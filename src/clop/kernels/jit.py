"""Numba's decorators as this package uses them: compiled code is kept on disk wherever a folder can be written."""

import functools
from collections.abc import Callable
from typing import Any

import numba
from numba import types


def _cached(decorator: Callable[..., Any]) -> Callable[[Callable[..., Any]], Any]:
    def decorate(function: Callable[..., Any]) -> Any:
        try:
            return decorator(cache=True)(function)
        except RuntimeError:  # neither the package's folder nor the user's cache is writable
            return decorator()(function)

    return decorate


jit = _cached(functools.partial(numba.njit, nogil=True))
"""A compiled function that Python and other compiled functions call."""

callback = _cached(functools.partial(numba.cfunc, types.void(types.CPointer(types.int64))))
"""A compiled function that C calls with one pointer to 64-bit words."""
