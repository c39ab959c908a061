"""Sentences and charts on the layers that the probe reads."""

import re
from xml.etree import ElementTree

import pytest
from reports import make_report, make_run, vary

from jaxpt.report import page
from jaxpt.report.task_charts import average_layers, draw_layers, list_probed
from jaxpt.report.terminal import format_table
from jaxpt.report.types import group_by_name

HOSTILE = '<b a="&">'


def make_record(layer, pooling, accuracies, num_test=3000):
    return {
        "layer": layer,
        "num_layers": len(accuracies or [0] * 3) - 1,
        "pooling": pooling,
        "strength": 0.1,
        "is_chosen": accuracies is not None,
        "poolings": ["mean", "first", "last"],
        "accuracies": accuracies,
        "train_passages": 3000,
        "test_passages": num_test,
    }


def make_probed(name, seed, value, trained, untrained=None):
    run = make_run(name, seed, probe_accuracy=value, probe_accuracy_random=0.5)
    records = {"trained": trained, "untrained": untrained}
    return vary(run, probe={k: v for k, v in records.items() if v})


LOW = [[0.5, 0.4, 0.3], [0.6, 0.5, 0.4], [0.7, 0.6, 0.5]]
HIGH = [[0.7, 0.4, 0.3], [0.8, 0.5, 0.4], [0.5, 0.6, 0.5]]


def test_what_was_read_is_told_with_its_seeds():
    runs = [
        make_probed("mlm", 0, 0.6, make_record(2, "mean", LOW)),
        make_probed("mlm", 1, 0.7, make_record(1, "mean", HIGH)),
        make_probed("mlm", 2, 0.8, make_record(1, "mean", HIGH)),
        make_probed(
            "clm", 0, 0.9, make_record(2, "mean", None), make_record(0, "last", LOW)
        ),
        make_run("bart", 0),
    ]
    assert list_probed(runs) == [
        "probe of mlm: 0.700 (layer 1 of 2, mean: 2 seeds; layer 2 of 2, mean: 1 seed)",
        "probe of clm: 0.900 (layer 2 of 2, mean, not chosen: too few documents); "
        "random initialization: 0.500 (embeddings, last)",
    ]
    assert all(
        line.split()[2][:-1] in format_table(make_report(runs))
        for line in list_probed(runs)
    )


@pytest.mark.parametrize(
    "value, num, error", [(0.5, 2500, ""), (0.5, 2499, "0.010"), (0.9, 100, "0.030")]
)
def test_too_few_test_passages_are_told_with_their_error(value, num, error):
    few = make_probed("mlm", 0, value, make_record(2, "mean", LOW, num))
    many = make_probed("clm", 0, 0.5, make_record(2, "mean", LOW, 9000))
    notes = [line for line in list_probed([few, many]) if line.startswith("note")]
    expected = f"has {num:,} test passages, a binomial standard error of {error};"
    assert [expected in note for note in notes] == [True] * bool(error)


def test_a_layers_accuracy_is_the_mean_over_seeds():
    runs = [
        make_probed("mlm", 0, 0.6, make_record(2, "mean", LOW)),
        make_probed("mlm", 1, 0.6, make_record(1, "mean", HIGH)),
        make_probed("mlm", 2, 0.6, make_record(2, "mean", None)),
    ]
    assert average_layers(runs, "trained", 0) == pytest.approx([0.6, 0.7, 0.6])
    assert average_layers(runs, "trained", 2) == pytest.approx([0.3, 0.4, 0.5])
    assert average_layers(runs, "untrained", 0) == []


def test_each_layer_is_a_mark_at_its_accuracy():
    groups = group_by_name(
        [
            make_probed("mlm", 0, 0.6, make_record(2, "mean", LOW)),
            make_probed(HOSTILE, 0, 0.6, make_record(0, "mean", [[0.9, 0.1, 0.2]])),
            make_run("bart", 0),
        ]
    )
    chart = draw_layers(groups, "trained", "first")
    root = ElementTree.fromstring(chart)
    titles = [element.text for element in root.iter("title")]
    titles = [title for title in titles if ", layer" in title]  # not those of names
    assert titles == [
        *(f"mlm, layer {i}: {value:.3f}" for i, value in enumerate((0.4, 0.5, 0.6))),
        f"{HOSTILE}, layer 0: 0.100",
    ]
    (line,) = [
        e.get("d")
        for e in root.iter("path")
        if e.get("class") == "mean" and "L" in e.get("d")
    ]
    points = [tuple(map(float, p.split())) for p in re.split("[ML]", line) if p]
    across, down = zip(*points, strict=True)
    assert across[1] - across[0] == pytest.approx(across[2] - across[1])
    assert down[0] > down[1] > down[2]  # higher is better, and further up
    assert down[0] - down[1] == pytest.approx(down[1] - down[2], abs=0.2)


def test_the_page_has_the_picture_where_there_is_one(tmp_path):
    probed = [make_probed("mlm", s, 0.6, make_record(2, "mean", LOW)) for s in (0, 1)]
    for runs, expected in (
        (probed, True),
        ([make_run("mlm", probe_accuracy=0.6)], False),
    ):
        path = page.write_report(make_report(runs), tmp_path)
        text = path.read_text()
        assert (
            ('id="layers-part"' in text) == ('<section id="layers"' in text) == expected
        )
        assert ("#layers:has(#layers-0-1:checked)" in text) == expected
