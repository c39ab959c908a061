"""Progress of preparing text."""

import io
import re
import sys

from jaxpt.runs.progress_bars import make_reporter


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self):
        return True


def test_lines_come_every_ten_seconds(monkeypatch):
    stream, now = io.StringIO(), [100.0]
    monkeypatch.setattr(sys, "stdout", stream)
    update = make_reporter(lambda: now[0]).progress("preparing x", 4_000_000)
    for seconds, done in (
        (5, (500_000, 1, 2)),
        (10, (1_000_000, 1, 1234)),
        (15, (1_500_000, 4, 2000)),
        (20, (3_000_000, 5, 0)),  # a tokenizer is trained: no tokens yet
    ):
        now[0] = 100 + seconds
        update(done)
    now[0] = 200
    update(None)
    assert stream.getvalue().splitlines() == [
        "preparing x: 1.0 MB (25%), 1 document, 1,234 tokens, 0.1 MB/s",
        "preparing x: 3.0 MB (75%), 5 documents, 0.1 MB/s",
    ]


def test_a_share_needs_a_total(monkeypatch):
    stream, now = io.StringIO(), [0.0]
    monkeypatch.setattr(sys, "stdout", stream)
    update = make_reporter(lambda: now[0]).progress("x", 0)
    now[0] = 20
    update((1_000_000, 3, 7))
    assert stream.getvalue() == "x: 1.0 MB, 3 documents, 7 tokens, 0.1 MB/s\n"


def test_a_bar_is_one_line_of_a_narrow_terminal(monkeypatch):
    stream = Terminal()
    monkeypatch.setattr(sys, "stdout", stream)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "80")
    update = make_reporter().progress("preparing /data/" + "folder/" * 20, 10**9)
    update((10**9 // 2, 100, 123_456_789))
    update(None)
    shown = re.sub(r"\x1b\[[\d;?]*[A-Za-z]", "", stream.getvalue())
    assert shown.count("\n") == 1
    assert "…" in shown and "0.5/1.0 GB" in shown and "123,456,789 tokens" in shown


def test_a_terminal_has_a_bar(monkeypatch):
    stream = Terminal()
    monkeypatch.setattr(sys, "stdout", stream)
    monkeypatch.setenv("TERM", "xterm-256color")
    reporter = make_reporter()
    reporter.log("begin")
    update = reporter.progress("preparing [x]", 2_000_000)
    update((1_000_000, 3, 1234))
    update(None)
    result = stream.getvalue()
    assert result.startswith("begin\n")
    assert (
        "preparing [x]" in result
        and "1,234 tokens" in result
        and "1.0/2.0 MB" in result
    )
