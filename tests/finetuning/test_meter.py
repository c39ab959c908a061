"""The clock of a run, with a clock that the test sets."""

from jaxpt.finetuning.meter import Meter


def test_what_is_compiled_does_not_count():
    now, lines = [0.0], []
    meter = Meter(
        lambda step, line: lines.append(line), 100, every=10, clock=lambda: now[0]
    )
    meter.pause()
    now[0] += 60  # compiles
    meter.add(1, 8, 0.5)
    meter.resume()
    assert lines == ["step 1/100: loss 0.5000"]
    for step in range(2, 12):
        now[0] += 1
        meter.add(step, 8, 0.25)
    assert lines[1:] == ["step 11/100: loss 0.2500, 8 examples/s, 1:29 left"]
    meter.pause()
    now[0] += 30  # measures
    meter.resume()
    assert meter.rates() == {"seconds": 10.0, "examples_per_second": 8.0}
    for step in range(12, 22):
        now[0] += 2
        meter.add(step, 8, 0.25)
    # 83 steps of 2 seconds are left.
    assert lines[-1] == "step 17/100: loss 0.2500, 4 examples/s, 2:46 left"
    meter.pause()
    assert meter.rates() == {"seconds": 30.0, "examples_per_second": 8.0}
