"""Ctrl-C and SIGTERM, while something runs that wants to save before it stops."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def handling(handler: Any) -> Iterator[None]:
    """A handler of SIGINT and SIGTERM, which reach the main thread alone; at the end the earlier ones are back."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, handler) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)
