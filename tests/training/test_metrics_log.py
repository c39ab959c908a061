"""What is logged is read back the same, also by a run that was killed and resumed."""

import contextlib
import io
import itertools
import json
import math
import os
import signal
import struct
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tensorboardX.proto.event_pb2 import Event, SessionLog

from jaxpt import logs
from jaxpt.errors import UserError
from jaxpt.runs.metrics_file import read_metrics
from jaxpt.training.metrics_log import MetricWriter, Progress

ROOT = Path(__file__).resolve().parents[2]


def read_tensorboard(workdir):
    """[(step, tag, value)] as TensorBoard shows them: a start hides later steps."""
    rows = []
    for path in sorted((workdir / "tensorboard").iterdir()):
        data = path.read_bytes()
        while data:
            (length,) = struct.unpack("<Q", data[:8])
            event = Event.FromString(data[12 : 12 + length])
            data = data[16 + length :]
            if event.session_log.status == SessionLog.START:
                rows = [row for row in rows if row[0] < event.step]
            for value in event.summary.value:
                number = value.simple_value
                rows.append((event.step, value.tag, number))
    return rows


# MetricWriter.


def test_lines_and_scalars(tmp_path):
    with MetricWriter(tmp_path / "run") as writer:
        writer.write(1, {"loss": 2.5, "accuracy": np.float32(0.25)})
        # Without flush or close: the line is there for `tail -f`.
        text = (tmp_path / "run" / "metrics.jsonl").read_text()
        assert text == '{"step": 1, "loss": 2.5, "accuracy": 0.25}\n'
        writer.write(2, {"loss": 2.0})
        writer.flush()
        assert read_tensorboard(tmp_path / "run") == [
            (1, "loss", 2.5),
            (1, "accuracy", 0.25),
            (2, "loss", 2.0),
        ]
    assert read_metrics(tmp_path / "run") == [
        {"step": 1, "loss": 2.5, "accuracy": 0.25},
        {"step": 2, "loss": 2.0},
    ]


def test_texts_stand_beside_the_numbers(tmp_path):
    with MetricWriter(tmp_path) as writer:
        writer.write(1, {"loss": 2.5}, {"sample": "fills: th[e≠a]\nfills: *"})
    (row,) = read_metrics(tmp_path)
    assert row == {"step": 1, "loss": 2.5, "sample": "fills: th[e≠a]\nfills: *"}
    (path,) = (tmp_path / "tensorboard").iterdir()
    # As it is, not as Markdown.
    assert "    fills: th[e≠a]\n    fills: *".encode() in path.read_bytes()
    assert [tag for _, tag, _ in read_tensorboard(tmp_path)][0] == "loss"


def test_not_finite_stays_json(tmp_path):
    with MetricWriter(tmp_path) as writer:
        writer.write(1, {"a": math.nan, "b": math.inf, "c": -math.inf})

    def refuse(name):
        raise AssertionError(f"{name} is not JSON")

    line = (tmp_path / "metrics.jsonl").read_text()
    values = json.loads(line, parse_constant=refuse)
    assert values == {"step": 1, "a": "nan", "b": "inf", "c": "-inf"}
    (row,) = read_metrics(tmp_path)
    assert math.isnan(row["a"]) and row["b"] == math.inf and row["c"] == -math.inf


@given(st.dictionaries(st.text(), st.floats(), max_size=5), st.integers(0, 2**40))
def test_any_floats_come_back(tmp_path_factory, values, step):
    values = {name: values[name] for name in values if name != "step"}
    workdir = tmp_path_factory.mktemp("run")
    with MetricWriter(workdir) as writer:
        writer.write(step, values)
    (row,) = read_metrics(workdir)
    assert row.pop("step") == step
    assert list(row) == list(values)
    for key, value in values.items():
        assert struct.pack("d", row[key]) == struct.pack("d", value) or (
            math.isnan(value) and math.isnan(row[key])
        )


def test_step_is_no_metric(tmp_path):
    with MetricWriter(tmp_path) as writer:
        with pytest.raises(ValueError, match="step"):
            writer.write(1, {"step": 3.0})


def write_steps(workdir, steps, resume_step=0):
    with MetricWriter(workdir, resume_step) as writer:
        for step in steps:
            writer.write(step, {"loss": 1 / (step + 1)})


@pytest.mark.parametrize("resume_step", [0, 1, 4, 7])
@pytest.mark.parametrize("cut", [b"", b'{"step": 8, "lo'])
def test_a_resumed_file_is_that_of_one_run(tmp_path, resume_step, cut):
    write_steps(tmp_path / "whole", range(10))
    write_steps(tmp_path / "resumed", range(8))
    path = tmp_path / "resumed" / "metrics.jsonl"
    path.write_bytes(path.read_bytes() + cut)
    first = resume_step + 1 if resume_step else 0
    write_steps(tmp_path / "resumed", range(first, 10), resume_step)
    assert path.read_bytes() == (tmp_path / "whole" / "metrics.jsonl").read_bytes()
    assert not path.with_name("metrics.jsonl.tmp").exists()
    logged = read_tensorboard(tmp_path / "resumed")
    assert logged == read_tensorboard(tmp_path / "whole")


def test_killed_in_the_middle(tmp_path):
    code = """
        import sys
        from jaxpt.training.metrics_log import MetricWriter
        writer = MetricWriter(sys.argv[1])
        for step in range(10**9):
            writer.write(step, {"loss": 1 / (step + 1)})
            if step == 300:
                print(flush=True)
    """
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code), tmp_path],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
    )
    process.stdout.readline()
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert len(read_metrics(tmp_path)) > 300
    write_steps(tmp_path, range(201, 400), resume_step=200)
    assert [row["step"] for row in read_metrics(tmp_path)] == list(range(400))


def test_damage_before_the_last_checkpoint_is_found(tmp_path, refuses):
    path = tmp_path / "metrics.jsonl"
    with MetricWriter(tmp_path) as writer:
        for step in range(6):
            writer.write(step, {"loss": 1.5})
            if step == 3:
                writer.record_checksum()
    whole = path.read_bytes()
    vouched = b"".join(whole.splitlines(keepends=True)[:4])
    for place in range(len(vouched)):
        data = bytearray(whole)
        data[place] ^= 1
        path.write_bytes(data)
        with refuses(str(path), "was altered"):
            read_metrics(tmp_path)
        with refuses(str(path), "was altered"):
            MetricWriter(tmp_path, resume_step=3)
        assert path.read_bytes() == data
    for size in range(len(vouched)):
        path.write_bytes(whole[:size])
        with refuses(str(path), "was altered"):
            read_metrics(tmp_path)
    # What a kill may cut off; and a run that restored nothing needs none of it.
    path.write_bytes(whole[: len(vouched) + 5])
    assert [row["step"] for row in read_metrics(tmp_path)] == [0, 1, 2, 3]
    path.write_bytes(b"\0" + whole)
    write_steps(tmp_path, range(2))
    assert [row["step"] for row in read_metrics(tmp_path)] == [0, 1]


@pytest.mark.parametrize("last", range(5))
@pytest.mark.parametrize("resume_step", [0, 2, 5])
def test_killed_as_it_resumes_it_is_no_damage(tmp_path, monkeypatch, last, resume_step):
    """Wherever it is: the checksum may be older than the log, or newer."""

    class Killed(BaseException):
        pass

    changes, replace = itertools.count(), os.replace

    def stop(*arguments):
        if next(changes) == last:
            raise Killed
        replace(*arguments)

    with MetricWriter(tmp_path / "killed") as writer:
        for step in range(8):
            writer.write(step, {"loss": 1 / (step + 1)})
            writer.record_checksum()
    more = range(resume_step + 1 if resume_step else 0, 8)
    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", stop)
        with contextlib.suppress(Killed):
            with MetricWriter(tmp_path / "killed", resume_step) as writer:
                for step in more:
                    writer.write(step, {"loss": 1 / (step + 1)})
                    writer.record_checksum()
    assert all(row["step"] < 8 for row in read_metrics(tmp_path / "killed"))
    write_steps(tmp_path / "killed", more, resume_step)
    write_steps(tmp_path / "whole", range(8))
    logs = [tmp_path / name / "metrics.jsonl" for name in ("killed", "whole")]
    assert logs[0].read_bytes() == logs[1].read_bytes()


def test_no_link_is_written_through(tmp_path, refuses):
    victim = tmp_path / "victim"
    victim.write_text("dear diary")
    run = tmp_path / "run"
    run.mkdir()
    for name in ("metrics.jsonl", "metrics.jsonl.tmp"):
        (run / name).symlink_to(victim)
    write_steps(run, range(3))
    assert len(read_metrics(run)) == 3 and not (run / "metrics.jsonl").is_symlink()
    (run / "metrics.jsonl").unlink()
    (run / "metrics.jsonl").symlink_to(tmp_path / "nowhere")
    write_steps(run, range(3))
    (run / "tensorboard" / "events.out.tfevents.9.host.0").symlink_to(victim)
    with refuses("tfevents.9.host.0", "is a link"):
        MetricWriter(run)
    assert victim.read_text() == "dear diary"
    assert not (tmp_path / "nowhere").exists()


def test_a_live_file_can_be_read(tmp_path):
    write_steps(tmp_path, range(2))
    with open(tmp_path / "metrics.jsonl", "a") as file:
        file.write('{"step": 2, "loss": 0.')
    assert [row["step"] for row in read_metrics(tmp_path)] == [0, 1]


def test_bad_files_are_one_line(tmp_path):
    with pytest.raises(UserError, match="metrics.jsonl: No such file"):
        read_metrics(tmp_path)
    path = tmp_path / "metrics.jsonl"
    for line in ["{}", "[1]", '{"step": "x"}', '{"step": 1', "\0\0"]:
        path.write_text('{"step": 1}\n' + line + "\n")
        with pytest.raises(UserError, match="metrics.jsonl line 2: .* must be a JSON"):
            read_metrics(tmp_path)
        with pytest.raises(UserError, match="line 2"):
            MetricWriter(tmp_path, resume_step=1)
    with pytest.raises(UserError, match="cannot be written"):
        MetricWriter(path / "below a file")


def test_a_full_disk_is_one_line(tmp_path):
    # A file size limit stands for the full disk. 100 writes: none may wait for ever.
    code = """
        import resource, sys
        from jaxpt.errors import UserError
        from jaxpt.training.metrics_log import MetricWriter
        hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
        try:
            with MetricWriter(sys.argv[1]) as writer:
                resource.setrlimit(resource.RLIMIT_FSIZE, (2000, hard))
                for step in range(100):
                    writer.write(step, {"loss": 1.0, "accuracy": 0.5})
        except UserError as error:
            print(error)
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
        try:
            with MetricWriter(sys.argv[1] + "2") as writer:
                writer.write(1, {"loss": 1.0})
                resource.setrlimit(resource.RLIMIT_FSIZE, (1, hard))
                1 / 0
        except ZeroDivisionError:
            print("the error that ended the run is the one raised")
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), tmp_path],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0
    assert done.stdout.splitlines() == [
        f"metrics: {tmp_path} cannot be written: File too large",
        "the error that ended the run is the one raised",
    ]
    assert len(read_metrics(tmp_path)) > 10


# Progress.


class Clock:
    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


class Terminal(io.StringIO):
    def isatty(self):
        return True


@contextlib.contextmanager
def printed_to(stream):
    """Progress is printed to the stream."""
    with contextlib.redirect_stdout(stream), logs.terminal():
        yield


def test_plain_lines():
    stream, clock = io.StringIO(), Clock()
    with (
        printed_to(stream),
        Progress(6000, prefix="mlm seed 1", clock=clock) as progress,
    ):
        clock.now += 60
        progress.update(1200, {"loss": 2.31124}, tokens_per_second=41_234, mfu=0.371)
        logs.LOGGER.info("saved [bold]step[/] 1200")
        clock.now += 60
        progress.update(2400, {"loss": 2.0, "lr": 1e-4}, tokens_per_second=950)
    assert stream.getvalue().splitlines() == [
        "mlm seed 1  step 1200/6000  loss 2.3112  41.2k tokens/s  mfu 37.1%  ETA 04:00",
        "saved [bold]step[/] 1200",
        "mlm seed 1  step 2400/6000  loss 2.0000  lr 0.0001  950 tokens/s  ETA 03:00",
    ]


def etas(total, start, updates):
    """The ETA shown at each (step, seconds since the start)."""
    stream, clock = io.StringIO(), Clock()
    with printed_to(stream), Progress(total, start, clock=clock) as progress:
        for step, seconds in updates:
            clock.now = 1000.0 + seconds
            progress.update(step, {}, tokens_per_second=1.0)
    return [line.split("ETA ")[1] for line in stream.getvalue().splitlines()]


def test_eta():
    assert etas(100, 0, [(10, 10.0)]) == ["01:30"]
    # Resumed at 50: those steps took no time now.
    assert etas(100, 50, [(60, 20.0)]) == ["01:20"]
    assert etas(10_000, 0, [(1, 2.0)]) == ["5:33:18"]
    assert etas(10, 0, [(0, 1.0), (10, 2.0), (11, 3.0)]) == ["--:--", "00:00", "00:00"]
    # Going back starts the measurement anew.
    assert etas(100, 0, [(50, 1.0), (40, 2.0), (50, 12.0)])[1:] == ["--:--", "00:50"]


def test_eta_forgets_compiling():
    # 100 s of compiling, then a second a step.
    remaining = etas(100, 0, [(step, 100.0 + step) for step in range(1, 21)])
    assert remaining[0] == "2:46:39"
    assert remaining[-1] == "01:20"


@pytest.mark.parametrize(
    "rate, text",
    [
        (0, "0"),
        (999.4, "999"),
        (999.6, "1.0k"),
        (41_234, "41.2k"),
        (999_960, "1.0M"),
        (2.5e6, "2.5M"),
        (3e9, "3.0G"),
    ],
)
def test_rates(rate, text):
    stream = io.StringIO()
    with printed_to(stream):
        Progress(1).update(1, {}, tokens_per_second=rate)
    assert f"  {text} tokens/s" in stream.getvalue()


@pytest.mark.parametrize(
    "value, text",
    [
        (0.0, "0.0000"),
        (2.31126, "2.3113"),
        (-0.5, "-0.5000"),
        (1e-5, "1e-05"),
        (123456.0, "1.23e+05"),
        (math.nan, "nan"),
        (math.inf, "inf"),
    ],
)
def test_values(value, text):
    stream = io.StringIO()
    with printed_to(stream):
        Progress(1).update(1, {"x": value}, tokens_per_second=1.0)
    assert f"  x {text}  " in stream.getvalue()


@pytest.mark.parametrize("columns", [40, 80, 120])
def test_bar_on_a_terminal(monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("TERM", "xterm-256color")
    stream, clock = Terminal(), Clock()
    with printed_to(stream), Progress(6000, prefix="[mlm]", clock=clock) as progress:
        clock.now += 60
        progress.update(1200, {"loss": 2.3}, tokens_per_second=41_234, mfu=0.371)
        logs.LOGGER.info("saved [bold]step[/] 1200 :tada:" + "." * 200)
    text = stream.getvalue()
    assert "\x1b[" in text and "\u2501" in text
    # A narrow terminal wraps between words and cuts nothing off.
    for word in "[mlm] step 1200/6000 loss 2.3000 41.2k mfu 37.1% ETA 04:00".split():
        assert f" {word} " in text.replace("\n", " ")
    assert "saved [bold]step[/] 1200 :tada:" + "." * 200 in text


def test_a_bar_shows_the_position_in_a_comparison(monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("TERM", "xterm-256color")
    stream = Terminal()
    with (
        printed_to(stream),
        logs.part_of("run 2 of 4"),
        Progress(10, prefix="mlm") as progress,
    ):
        progress.update(5, {}, tokens_per_second=1.0)
    assert "[run 2 of 4]  mlm  step 5/10" in stream.getvalue()
    plain = io.StringIO()
    with printed_to(plain), logs.part_of("run 2 of 4"), Progress(10) as progress:
        progress.update(5, {}, tokens_per_second=1.0)
    assert plain.getvalue().startswith("step 5/10")


def test_no_bar_on_a_dumb_terminal(monkeypatch):
    monkeypatch.setenv("TERM", "dumb")
    stream = Terminal()
    with printed_to(stream), Progress(10) as progress:
        progress.update(5, {}, tokens_per_second=1.0)
    assert stream.getvalue().startswith("step 5/10  1 tokens/s")
    assert "\x1b" not in stream.getvalue()
