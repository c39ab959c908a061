import itertools
import math
import subprocess
import sys

import matplotlib.colors
import matplotlib.image
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.text import Text

from jaxpt.objectives import OBJECTIVES
from jaxpt.report import formats, plots, styles, tuned_curves, tuned_plot

HOSTILE = ["$\\frac$", " $a$ ", "\n", "\t", "\x00", "中", "<b>", "_x", "w" * 60]


@pytest.fixture
def figures(monkeypatch):
    """The figures that were written, kept to look at after the file is on disk."""
    kept = []
    save = plots.save_figure

    def save_and_keep(figure, path):
        save(figure, path)
        kept.append(figure)

    monkeypatch.setattr(plots, "save_figure", save_and_keep)
    return kept


def make_run(objective, num_points=6, seed=0, probe=True, loss=2.0):
    curve = []
    for step in range(1, num_points + 1):
        point = {
            "step": step,
            "raw_tokens": step * 1_000_000,
            "flops": step * 1e15,
            "seconds": step * 60.0 + seed,
            "valid_loss": loss + 1 / step,
            "valid_accuracy": 0.5,
        }
        if probe:
            point["probe_accuracy"] = 0.5 + 0.02 * step
        curve.append(point)
    return {"name": objective, "seed": seed, "curve": curve}


def make_mask(size, **extra):
    labels = (HOSTILE * size)[:size]
    mask = np.tril(np.ones((size, size), bool))
    return {"mask": mask, "query_labels": labels, "key_labels": labels} | extra


def make_summary(names, std=0.01):
    stats = {
        name: {"mean": 0.1 * i, "std": std, "n": 3} for i, name in enumerate(names)
    }
    labels = {
        "probe_accuracy": "linear probe on frozen features",
        "bits_per_byte": "bits per byte",
        "valid_loss": "validation loss",
    }
    return [
        {
            "metric": metric,
            "label": label,
            "higher_is_better": True,
            "is_common": metric != "valid_loss",
            "by_name": stats,
        }
        for metric, label in labels.items()
    ]


def draw_learning_curves(path):
    runs = [make_run(name, seed=seed) for name in OBJECTIVES for seed in range(2)]
    plots.learning_curves(runs, path, {"probe_accuracy": {"chance": 0.5, "$x$": 0.52}})


def draw_attention_masks(path):
    masks = {"causal": make_mask(9), "two words $or$ more": make_mask(14, split=(9, 9))}
    plots.attention_masks(masks, path)


def draw_temperature_effect(path):
    rising = np.linspace(0.001, 0.3, len(HOSTILE))[::-1]
    probabilities = {1.0: rising, 0.5: rising * 2, 2.0: rising / 2}
    plots.temperature_effect(HOSTILE, probabilities, "It cost $3,\nor $4 " * 9, path)


def draw_mask_fill(path):
    candidates = [(token, 0.5 / (i + 1)) for i, token in enumerate(HOSTILE)]
    example = {"text": "a _ of $x$ and $y$ " * 20, "candidates": candidates}
    examples = [
        example | {"truth": truth} for truth in ("\n", "absent", "中", "w" * 60)
    ]
    plots.mask_fill(examples, path)


def draw_pretrained_vs_random(path):
    rows = {
        "pretrained": {"top-1": 0.41, "top-5": 0.999},
        "random init": {"top-1": 0.002, "top-5": 0.009},
    }
    plots.pretrained_vs_random(rows, path)


def draw_shared_metrics(path):
    plots.shared_metrics(make_summary([*OBJECTIVES, "$new$"]), path)


def draw_finetuning_curves(path):
    entries = [
        {"task": task, "metric": f"{task}_{num}", "num_labels": num, "constant": 0.25}
        | {"measure": "test accuracy"}
        for task, nums in (("topics", (32, 100, 316, 1000, 3160)), ("$tags$", (32,)))
        for num in nums
    ]
    runs = []
    for name, seed in itertools.product(("clm", "two words $or$ more"), range(2)):
        metrics = {
            f"{entry['metric']}{suffix}": 0.3 + 0.0001 * entry["num_labels"] + gain
            for entry in entries
            for suffix, gain in (
                ("", 0.2 + 0.01 * seed),
                ("_random", 0),
                ("_ngrams", 0.1),
            )
        }
        runs.append({"name": name, "seed": seed, "tasks": entries, "metrics": metrics})
    groups = formats.group_by_name(runs)
    tuned_plot.finetuning_curves(groups, tuned_curves.list_tuned(groups), path)


PICTURES = {
    "learning_curves": draw_learning_curves,
    "attention_masks": draw_attention_masks,
    "temperature_effect": draw_temperature_effect,
    "mask_fill": draw_mask_fill,
    "pretrained_vs_random": draw_pretrained_vs_random,
    "shared_metrics": draw_shared_metrics,
    "finetuning_curves": draw_finetuning_curves,
}


def get_texts(figure):
    """Every text that is drawn, with its box in pixels."""
    figure.draw_without_rendering()  # Saving left the boxes at the file's resolution.
    width, height = figure.bbox.size
    undrawn = set()
    for axis in (axis for axes in figure.axes for axis in (axes.xaxis, axes.yaxis)):
        low, high = sorted(axis.get_view_interval())
        for tick in axis.get_major_ticks():
            if not low <= tick.get_loc() <= high:
                undrawn |= {tick.label1, tick.label2}
    boxes = []
    for text in figure.findobj(Text):
        if text.get_text().strip() and text.get_visible() and text not in undrawn:
            box = text.get_window_extent()
            inside = box.x0 > -1 and box.x1 < width + 1
            inside &= box.y0 > -1 and box.y1 < height + 1
            assert inside, f"{text.get_text()!r} leaves the picture"
            boxes.append((text.get_text(), box))
    return boxes


def get_labels(figure):
    return [text.get_text() for text in figure.findobj(Text) if text.get_text()]


def count_pixels(path, color):
    pixels = matplotlib.image.imread(path)[..., :3]
    return int((abs(pixels - matplotlib.colors.to_rgb(color)).max(-1) < 0.01).sum())


@pytest.mark.slow_except("pretrained_vs_random")
@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", PICTURES)
def test_picture_is_a_sharp_png_whose_texts_do_not_overlap(name, figures, tmp_path):
    path = tmp_path / "picture.png"
    PICTURES[name](path)
    assert path.read_bytes().startswith(b"\x89PNG\r\n")
    assert matplotlib.image.imread(path).shape[1] > 800
    (figure,) = figures
    texts = get_texts(figure)
    assert len(texts) > 5
    for (one, box), (other, other_box) in itertools.combinations(texts, 2):
        width = min(box.x1, other_box.x1) - max(box.x0, other_box.x0)
        height = min(box.y1, other_box.y1) - max(box.y0, other_box.y0)
        assert width <= 1 or height <= 1, (one, other)


def test_many_shared_metrics_are_in_several_rows(figures, tmp_path):
    one = make_summary(["clm", "mlm"])[0]
    for num, shape in ((1, (1, 1)), (6, (1, 6)), (8, (2, 6))):
        summary = [
            one | {"metric": f"m{i}", "label": f"metric {i}"} for i in range(num)
        ]
        plots.shared_metrics(summary, tmp_path / "picture.png")
        assert len(figures[-1].axes) == num
        assert figures[-1].axes[0].get_gridspec().get_geometry() == shape


def test_every_plot_has_a_caption():
    assert set(plots.CAPTIONS) == set(PICTURES)


def test_drawing_needs_neither_pyplot_nor_jax(tmp_path):
    code = (
        "import sys\nfrom jaxpt.report import plots\n"
        "rows = {'pretrained': {'top-1': 0.4}, 'random init': {'top-1': 0.1}}\n"
        f"plots.pretrained_vs_random(rows, {str(tmp_path / 'a.png')!r})\n"
        "print([m for m in ('matplotlib.pyplot', 'jax') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stderr


@pytest.mark.slow
def test_an_objective_has_its_colour_in_every_picture(tmp_path):
    curves, dots = tmp_path / "curves.png", tmp_path / "dots.png"
    plots.learning_curves([make_run("electra"), make_run("clm")], curves)
    plots.shared_metrics(make_summary(["electra", "clm"]), dots)
    for path in (curves, dots):
        pixels = [count_pixels(path, color) for color, _ in styles.PALETTE]
        assert min(pixels[:2]) > 50 > max(pixels[2:])


def test_probe_row_appears_only_where_probed(figures, tmp_path):
    plots.learning_curves([make_run("clm", probe=False)], tmp_path / "a.png")
    plots.learning_curves([make_run("clm")], tmp_path / "b.png")
    assert [len(figure.axes) for figure in figures] == [3, 6]
    titles = [axes.get_title() for axes in figures[1].axes]
    # The shared metric is the first row.
    assert not any("not comparable" in title for title in titles[:3])
    assert all("not comparable" in title for title in titles[3:])
    costs = [axes.get_xlabel() for axes in figures[0].axes]
    assert costs == ["FLOPs", "raw tokens", "training seconds"]


def test_mean_curve_spans_the_steps_every_seed_has(figures, tmp_path):
    runs = [
        make_run("clm", num_points=4, seed=0, loss=2.0, probe=False),
        make_run("clm", num_points=2, seed=10, loss=3.0, probe=False),
    ]
    plots.learning_curves(runs, tmp_path / "a.png")
    first, second, mean = figures[0].axes[2].lines
    assert len(first.get_xdata()) == 4 and len(second.get_xdata()) == 2
    np.testing.assert_allclose(mean.get_xdata(), [65, 125])
    # Shares of each seed's own start: 1, and the mean of 2.5 / 3 and 3.5 / 4.
    np.testing.assert_allclose(mean.get_ydata(), [1.0, (2.5 / 3 + 3.5 / 4) / 2])
    assert mean.get_linewidth() > first.get_linewidth()


def test_a_curve_with_gaps_or_no_points_is_drawn(figures, tmp_path):
    run = make_run("mlm", probe=False)
    run["curve"][2]["valid_loss"] = None
    empty = make_run("clm", num_points=0)
    plots.learning_curves([run, empty], tmp_path / "a.png")
    drawn = figures[0].axes[0].lines[0].get_ydata()
    assert math.isnan(drawn[2]) and np.isfinite(np.delete(drawn, 2)).all()


def test_attention_mask_fills_the_true_cells(tmp_path):
    entry = {"query_labels": ["a"] * 6, "key_labels": ["b"] * 4}
    areas = []
    for num_true in (0, 6, 12, 24):
        mask = (np.arange(24) < num_true).reshape(6, 4)
        plots.attention_masks({"m": entry | {"mask": mask}}, tmp_path / "m.png")
        areas.append(count_pixels(tmp_path / "m.png", styles.BLUE))
    assert areas[0] == 0
    shares = np.array(areas[1:]) / areas[3]
    np.testing.assert_allclose(shares, [0.25, 0.5, 1], atol=0.02)


def test_attention_mask_draws_the_split(figures, tmp_path):
    plots.attention_masks({"m": make_mask(8, split=(3, 5))}, tmp_path / "m.png")
    row, column = figures[0].axes[0].lines
    assert set(row.get_ydata()) == {2.5} and set(column.get_xdata()) == {4.5}


def test_temperatures_are_in_order_with_the_right_bars(figures, tmp_path):
    tables = {2.0: np.array([0.3, 0.2]), 0.5: np.array([0.9, 0.1])}
    plots.temperature_effect([" a", "\n"], tables, "so\nit", tmp_path / "t.png")
    cold, hot = figures[0].axes
    assert "temperature 0.5" in cold.get_title() and "100%" in cold.get_title()
    assert "temperature 2" in hot.get_title() and "50%" in hot.get_title()
    assert [bar.get_width() for bar in cold.patches] == [0.9, 0.1]
    assert [bar.get_width() for bar in hot.patches] == [0.3, 0.2]
    assert [label.get_text() for label in cold.get_yticklabels()] == ["␣a", "⏎"]
    assert "so⏎it" in figures[0].get_suptitle()


def test_mask_fill_highlights_the_truth(figures, tmp_path):
    example = {"text": "a _ b", "candidates": [("x", 0.6), ("y", 0.2)]}
    examples = [example | {"truth": "y"}, example | {"truth": "z"}]
    plots.mask_fill(examples, tmp_path / "m.png")
    hit, miss = figures[0].axes
    colors = [matplotlib.colors.to_hex(bar.get_facecolor()) for bar in hit.patches]
    assert colors == [styles.BLUE.lower(), styles.ORANGE.lower()]
    assert "not in the top" not in hit.get_xlabel()
    assert "truth: z (not in the top 2)" in miss.get_xlabel()


@pytest.mark.parametrize("draw", ["mask_fill", "temperature_effect"])
def test_probabilities_end_at_one(draw, figures, tmp_path):
    """Also for a bar of nearly 1, whose label needs the margin."""
    if draw == "mask_fill":
        example = {"text": "a _ b", "truth": "x", "candidates": [("x", 0.96)]}
        unsure = example | {"candidates": [("x", 0.02), ("y", 0.01)]}
        plots.mask_fill([example, unsure], tmp_path / "p.png")
    else:
        tables = {0.5: np.array([0.96, 0.01]), 1.0: np.array([0.3, 0.2])}
        plots.temperature_effect(["a", "b"], tables, "text", tmp_path / "p.png")
    for axes in figures[0].axes:
        assert axes.get_xlim() == (0, 1)
    get_texts(figures[0])  # no text leaves the picture


def test_small_probabilities_fill_the_panel(figures, tmp_path):
    example = {"text": "a _ b", "truth": "x", "candidates": [("x", 0.04)]}
    plots.mask_fill([example], tmp_path / "p.png")
    assert 0.04 < figures[0].axes[0].get_xlim()[1] < 0.06


def test_mask_fill_shows_the_blank_of_a_long_text(figures, tmp_path):
    text = "before " * 90 + "_" + " after" * 90
    example = {"text": text, "candidates": [("x", 0.6)], "truth": "x"}
    plots.mask_fill([example], tmp_path / "m.png")
    title = figures[0].axes[0].get_title(loc="left").replace("\n", " ")
    assert "before before _ after after" in title and len(title) < 170
    assert title.startswith("…") and title.endswith("…")


def test_pretrained_vs_random_prints_its_values(figures, tmp_path):
    draw_pretrained_vs_random(tmp_path / "p.png")
    labels = get_labels(figures[0])
    expected = {"41.0%", "99.9%", "0.2%", "0.9%", "top-1", "pretrained", "random init"}
    assert expected <= set(labels)


def test_only_shared_metrics_are_shown(figures, tmp_path):
    plots.shared_metrics(make_summary(["clm"], std=None), tmp_path / "y.png")
    titles = [axes.get_title().split("\n")[0] for axes in figures[0].axes]
    assert titles == ["linear probe on frozen features", "bits per byte"]
    plots.shared_metrics(make_summary(["clm"])[2:], tmp_path / "none.png")
    assert "no shared metric was measured" in get_labels(figures[1])


@pytest.mark.parametrize(
    "token, text",
    [
        (" the", "␣the"),
        ("\n\t", "⏎⇥"),
        ("a\x00", "a\\x00"),
        ("é", "é"),
        ("中", "\\u4e2d"),
        ("a" * 21, "a" * 19 + "…"),
    ],
)
def test_show_token(token, text):
    assert plots.show_token(token) == text


@given(st.text())
def test_a_shown_token_is_visible_and_has_glyphs(token):
    text = plots.show_token(token)
    assert len(text) <= 20 and bool(text) == bool(token)
    assert not any(char.isspace() for char in text)
    assert {ord(char) for char in text} <= plots._get_glyphs()


@pytest.mark.parametrize(
    "number, text",
    [
        (0, "0"),
        (999, "999"),
        (12_345, "12.3k"),
        (999_900, "1M"),
        (4.56e6, "4.56M"),
        (7.89e9, "7.89B"),
        (1.23e12, "1.23T"),
    ],
)
def test_format_count(number, text):
    assert formats.format_count(number) == text


@pytest.mark.parametrize(
    "number, text", [(0, "0"), (123, "123"), (1.234e15, "1.23e15"), (2e5, "2e5")]
)
def test_format_flops(number, text):
    assert formats.format_flops(number) == text


def test_no_two_objectives_look_alike():
    chosen = styles.choose_styles(OBJECTIVES)
    colors, markers = zip(*chosen.values(), strict=True)
    assert len(set(colors)) == len(set(markers)) == len(OBJECTIVES)
    # More than there are colours for: grey.
    many = styles.choose_styles([f"name {i}" for i in range(30)])
    assert len(many) == 30 and many["name 29"] == (styles.GREY, "o")


def test_many_masks_stand_in_rows(figures, tmp_path):
    masks = {f"mask {i}": make_mask(4) for i in range(7)}
    plots.attention_masks(masks, tmp_path / "m.png")
    (figure,) = figures
    tops = [round(axes.get_position().y1, 2) for axes in figure.axes]
    assert len(figure.axes) == 7 and len(set(tops[:5])) == len(set(tops[5:])) == 1
    assert tops[5] < tops[0]


def test_no_link_is_written_through(tmp_path):
    (tmp_path / "victim").write_text("dear diary")
    (tmp_path / "x.png").symlink_to(tmp_path / "victim")
    plots.attention_masks({"x": make_mask(3)}, tmp_path / "x.png")
    assert (tmp_path / "victim").read_text() == "dear diary"
    assert (tmp_path / "x.png").read_bytes().startswith(b"\x89PNG")


def test_the_terminals_table_needs_no_plots():
    code = (
        "import sys; import jaxpt.report.summary; sys.exit('matplotlib' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_a_shared_metric_has_its_baselines_as_dotted_lines(figures, tmp_path):
    """Also if it was measured only before and after training."""
    run = vary(make_run("clm", probe=False), steps=6, raw_tokens=6e6, flops=6e15)
    run["metrics"] = {"word_accuracy": 0.6, "word_accuracy_random": 0.2}
    levels = {"word_accuracy": {"token frequencies": 0.3}}
    plots.learning_curves([run], tmp_path / "a.png", levels)
    axes = figures[0].axes[0]
    level, curve = axes.lines
    assert level.get_linestyle() == ":" and set(level.get_ydata()) == {0.3}
    np.testing.assert_allclose(curve.get_xydata(), [[0, 0.2], [6e15, 0.6]])
    assert "token frequencies 0.3" in figures[0].axes[1].get_xlabel()


def test_a_metric_without_a_curve_has_no_row_next_to_one_with_a_curve(
    figures, tmp_path
):
    run = make_run("clm", probe=True)
    run["metrics"] = {"word_accuracy": 0.6, "word_accuracy_random": 0.2}
    plots.learning_curves([run], tmp_path / "a.png")
    labels = [axes.get_ylabel() for axes in figures[0].axes[::3]]
    assert labels == [
        "linear probe on frozen features, accuracy",
        "validation loss / its first value",
    ]
