"""Progress of long work: a line that renews itself on a terminal, a plain line now and then elsewhere."""

import sys
import time
from typing import TextIO

_PLAIN_INTERVAL = 10.0  # seconds between lines where there is no terminal
_LIVE_INTERVAL = 0.1


class Progress:
    """Counts steps of a known total and shows rate, time left and a few values.

    Work that goes on after an interruption has a ``start``, which does not count in the rate. Use as a context
    manager: ``with Progress("digits", 15, "epochs") as progress: progress.step(loss=0.1)``.
    """

    def __init__(self, title: str, total: int, unit: str, start: int = 0, stream: TextIO | None = None) -> None:
        self.title, self.total, self.unit = title, total, unit
        self.stream = stream or sys.stderr
        self.done = self.start = start
        self.values: dict[str, str] = {}
        self._live = self.stream.isatty()
        self._written: int | None = None
        self._started = self._shown = time.monotonic()

    def __enter__(self) -> "Progress":
        return self

    def step(self, count: int = 1, **values: object) -> None:
        """Count work done, and note values to show: numbers as they should be read."""
        self.done += count
        self.values |= {
            name: f"{value:.3g}" if isinstance(value, float) else str(value) for name, value in values.items()
        }
        now = time.monotonic()
        if now - self._shown >= (_LIVE_INTERVAL if self._live else _PLAIN_INTERVAL):
            self._shown = now
            self._write(self.line())

    def state(self) -> dict[str, float]:
        """Done, total, units a second."""
        elapsed = time.monotonic() - self._started
        rate = (self.done - self.start) / elapsed if elapsed > 0 else 0.0
        return {"done": self.done, "total": self.total, "rate": rate}

    def line(self) -> str:
        """``digits, clop: 7/15 epochs, 1.2 epochs/s, 0:07 left, loss 0.1``."""
        elapsed, rate = time.monotonic() - self._started, self.state()["rate"]
        parts = [f"{self.done:,}/{self.total:,} {self.unit}".replace(",", " ")]
        if rate > 0:
            parts.append(f"{rate:.3g} {self.unit}/s")
            parts.append(
                f"{clock(elapsed)}" if self.done >= self.total else f"{clock((self.total - self.done) / rate)} left"
            )
        parts += [f"{name} {value}" for name, value in self.values.items()]
        return f"{self.title}: {', '.join(parts)}"

    def __exit__(self, *_: object) -> None:
        if self.done != self._written:
            self._write(self.line())
        if self._live:
            self.stream.write("\n")

    def _write(self, line: str) -> None:
        self._written = self.done
        self.stream.write(f"\r\x1b[2K{line}" if self._live else f"{line}\n")
        self.stream.flush()


def clock(seconds: float) -> str:
    """``1:02:03``, or ``2:03`` below an hour."""
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"
