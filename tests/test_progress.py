"""Progress: a plain line now and then without a terminal, one renewed line on one."""

import io

from clop import progress
from clop.progress import Progress


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_the_line_tells_count_rate_time_left_and_values(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    shown = Progress("digits", 40, "images", stream=io.StringIO())
    now[0] += 5
    shown.step(10, loss=0.12345)
    assert shown.line() == "digits: 10/40 images, 2 images/s, 0:15 left, loss 0.123"


def test_without_a_terminal_lines_are_plain_and_rare():
    """Fails if each step printed a line, or a log file held control characters."""
    stream = io.StringIO()
    with Progress("digits", 1000, "images", stream=stream) as shown:
        for _ in range(1000):
            shown.step()
    lines = stream.getvalue().splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("digits: 1 000/1 000 images")
    assert "\x1b" not in stream.getvalue()


def test_on_a_terminal_one_line_renews_itself():
    stream = Terminal()
    with Progress("digits", 2, "images", stream=stream) as shown:
        shown.step(2)
    assert stream.getvalue().count("\n") == 1
    assert "\r" in stream.getvalue()
