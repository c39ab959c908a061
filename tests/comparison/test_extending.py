"""Searches that go beyond an edge until the best trial is inside."""

import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from jaxpt.comparison.extending import (
    ValueScale,
    extend,
    find_best,
    find_beyond,
    make_scales,
)
from jaxpt.config.settings import default_config, find_types, to_dict
from jaxpt.config.trials import list_trials

TYPES = find_types(to_dict(default_config()))


def allow(settings):
    return True


def search(tune, score, num=8, allows=allow, draws=0, refuse=()):
    """All trials of a search whose values a function of the settings gives."""
    scales = make_scales(tune, "compare.tune", TYPES)
    listed = list_trials(tune, draws, 0, "compare.tune")
    trials = [{"settings": each, "value": score(each)} for each in listed]
    refused = []

    def run(settings):
        if settings in refuse:
            refused.append(settings)
            return None
        return {"value": score(settings)}

    def is_allowed(settings):
        return allows(settings) and settings not in refused

    extend(trials, num, False, scales, is_allowed, run)
    best = find_best(trials, False)
    tried = [trial["settings"] for trial in trials]
    beyond, at_limit = find_beyond(best["settings"], tried, scales, is_allowed)
    return trials, best["settings"], list(beyond), at_limit


def distance(name, optimum):
    """How far the logarithm of a setting is from an optimum's."""
    return lambda settings: abs(math.log(settings[name] / optimum))


def list_added(trials, name):
    return [trial["settings"][name] for trial in trials if "extends" in trial]


@pytest.mark.parametrize(
    "tune, optimum, added, best",
    [
        # Upwards by the ratio of the two greatest, 3; downwards of the least, 10.
        ("optim.lr=1e-4,1e-3,3e-3", 0.02, [0.009, 0.027, 0.081], 0.027),
        ("optim.lr=1e-4,1e-3,3e-3", 1.1e-5, [1e-5, 1e-6], 1e-5),
        ("optim.lr=1e-3,3e-3", 2.9e-3, [0.009], 3e-3),  # two values are both edges
        ("optim.lr=1e-3,2e-3,4e-3", 2e-3, [], 2e-3),
        ("train.batch_size=8,16", 5, [4, 2], 4),
        ("optim.weight_decay=0.0,0.1", 0.15, [0.2, 0.4], 0.2),  # 0 has no ratio
    ],
)
def test_a_list_continues_by_its_ratio_until_the_best_is_inside(
    tune, optimum, added, best
):
    name = tune.partition("=")[0]

    def score(settings):
        return abs(math.log((settings[name] or 1e-9) / optimum))

    trials, found, at_edge, at_limit = search(tune, score)
    assert list_added(trials, name) == pytest.approx(added)
    assert found == {name: pytest.approx(best)}
    assert at_edge == at_limit == []


def test_the_cap_ends_a_search_at_an_edge():
    trials, best, at_edge, _ = search(
        "optim.lr=1.0,2.0", lambda settings: -settings["optim.lr"], num=3
    )
    assert list_added(trials, "optim.lr") == [4.0, 8.0, 16.0]
    assert best == {"optim.lr": 16.0} and at_edge == ["optim.lr"]


@pytest.mark.parametrize(
    "tune, sign, added, limit",
    [
        ("model.dropout=0.0,0.1", 1, [], True),  # 0 is the least
        ("model.dropout=0.1,0.4", -1, [0.7, 0.85, 0.925], False),  # below 1
        ("model.num_layers=2,4", 1, [1], True),
        ("optim.min_lr_ratio=0.3,0.6", -1, [1.0], True),  # at most 1
        ("optim.slant_ratio=3.0,6.0", 1, [1.5, 1.0], True),
    ],
)
def test_settings_end_at_their_limits(tune, sign, added, limit):
    name = tune.partition("=")[0]
    score = lambda settings: sign * settings[name]  # noqa: E731
    trials, best, at_edge, at_limit = search(tune, score, num=3)
    assert list_added(trials, name) == pytest.approx(added)
    assert (at_limit == [name], at_edge == [name]) == (limit, not limit)
    assert best == trials[-1]["settings"] or not added


def test_what_cannot_be_trained_is_a_limit():
    """As a width that the heads do not divide, or of which no step can be bought."""
    score = lambda settings: -settings["optim.lr"]  # noqa: E731
    tune, most = "optim.lr=1.0,2.0", {"optim.lr": 4.0}
    for changes in (
        {"allows": lambda settings: settings["optim.lr"] < 4},
        {"refuse": [most]},
    ):
        trials, best, at_edge, at_limit = search(tune, score, **changes)
        assert best == {"optim.lr": 2.0} and len(trials) == 2
        assert at_edge == [] and at_limit == ["optim.lr"]


@pytest.mark.parametrize(
    "tune",
    [
        "optim.schedule=cosine,linear",
        "optim.bias_correction=True,False",
        "optim.epsilon=-1,1e-8",  # -1 is the optimizer's default, not less than 1e-8
        "data.mixture=None,x",
    ],
)
def test_categories_have_no_edge(tune):
    name = tune.partition("=")[0]
    for sign in (1, -1):
        score = lambda settings: sign * hash(str(settings[name]))  # noqa: E731
        trials, _, at_edge, at_limit = search(tune, score)
        assert len(trials) == 2 and at_edge == at_limit == []


def test_special_values_do_not_count_as_tried():
    tune, name = "optim.epsilon=-1,1e-8,1e-7", "optim.epsilon"
    # The default is best: a category. Then 1e-8, which is the least number tried.
    trials, best, *_ = search(tune, lambda settings: settings[name])
    assert len(trials) == 3 and best == {name: -1}
    trials, best, *_ = search(tune, lambda s: abs(s[name] - 1e-8))
    assert list_added(trials, name) == [1e-9] and best == {name: 1e-8}


def test_divergence_beyond_an_edge_is_inside():
    """A larger value was tried; and a search without any value is not extended."""

    def score(settings):
        return -settings["optim.lr"] if settings["optim.lr"] < 5 else None

    trials, best, at_edge, _ = search("optim.lr=1.0,2.0", score)
    assert list_added(trials, "optim.lr") == [4.0, 8.0]
    assert best == {"optim.lr": 4.0} and at_edge == []
    diverged = [{"settings": {"optim.lr": 1.0}, "value": None}]
    extend(diverged, 8, False, {"optim.lr": ValueScale()}, allow, None)
    assert len(diverged) == 1 and find_best(diverged, True) is None


def test_of_equal_trials_the_first_stays():
    trials, best, at_edge, _ = search("optim.lr=1.0,2.0", lambda settings: 0.0)
    assert list_added(trials, "optim.lr") == [0.5]
    assert best == {"optim.lr": 1.0} and at_edge == []


GRID = "optim.lr=1.0,2.0; optim.muon_lr=1.0,4.0; optim.name=muon,adamw"


def test_a_grid_is_extended_in_each_setting_in_turn_from_the_best_trial():
    """By hand: lr up to 4, then muon_lr up to 16; the other settings are the best."""

    def score(settings):
        values = math.log2(settings["optim.lr"]), math.log2(settings["optim.muon_lr"])
        return sum(-x for x in values) + (settings["optim.name"] == "adamw")

    trials, _, at_edge, _ = search(GRID, score, num=4)
    added = [(t["extends"], *t["settings"].values()) for t in trials[8:]]
    assert added == [
        ("optim.lr", 4.0, 4.0, "muon"),
        ("optim.muon_lr", 4.0, 16.0, "muon"),
        ("optim.lr", 8.0, 16.0, "muon"),
        ("optim.muon_lr", 8.0, 64.0, "muon"),
    ]
    assert at_edge == ["optim.lr", "optim.muon_lr"]


def test_a_random_search_is_extended_in_each_setting():
    """Beyond the least or greatest value drawn, by factors of 2 from the best."""
    tune = "optim.lr=1e-3..1e-2; optim.weight_decay=0.01,0.1; train.batch_size=8..64"
    drawn = list_trials(tune, 6, 0, "")
    best = drawn[2]  # say
    optimum = {key: value * 1.1 for key, value in best.items()}

    def score(settings):
        return sum(distance(key, optimum[key])(settings) for key in optimum)

    trials, found, at_edge, _ = search(tune, score, draws=6)
    assert [trial["settings"] for trial in trials[:6]] == drawn
    assert len(trials) > 6 and at_edge == []
    for trial in trials[6:]:
        assert len([k for k in optimum if trial["settings"][k] != found[k]]) <= 2
    for key in optimum:
        values = [trial["settings"][key] for trial in trials]
        assert min(values) < found[key] < max(values)


LISTS = st.lists(
    st.floats(1e-6, 10).map(lambda x: float(f"{x:.3g}")), min_size=2, unique=True
)
SETTINGS = "optim.lr", "optim.muon_lr"


def write(values_of):
    lists = (
        f"{name}={','.join(map(str, values))}"
        for name, values in zip(SETTINGS, values_of, strict=False)
    )
    return "; ".join(lists)


@given(st.lists(LISTS, min_size=1, max_size=2), st.floats(1e-7, 100), st.integers(1, 9))
@example([[10.0, 9.98]], 11.0, 2)
def test_a_search_is_bounded_and_ends_inside_or_at_the_cap(values_of, optimum, num):
    """Unimodal values: an end before the cap brackets the optimum."""
    names = SETTINGS[: len(values_of)]

    def score(settings):
        return sum(distance(name, optimum)(settings) for name in names)

    trials, best, at_edge, at_limit = search(write(values_of), score, num)
    num_listed = math.prod(map(len, values_of))
    assert num_listed <= len(trials) <= num_listed + num
    settings = [trial["settings"] for trial in trials]
    assert all(settings.count(each) == 1 for each in settings)
    assert (at_edge != []) <= (len(trials) == num_listed + num) and at_limit == []
    for name in set(names) - set(at_edge):
        values = sorted({each[name] for each in settings})
        where = values.index(best[name])
        assert values[where - 1] <= optimum <= values[where + 1] or best[name] == (
            pytest.approx(optimum)
        )
    # Nothing but the trials and their values decides.
    assert search(write(values_of), score, num)[0] == trials


@given(st.floats(1e-6, 1e6), st.floats(1.0001, 10), st.sampled_from([1, -1]))
def test_the_next_value_is_beyond(value, factor, side):
    """Also where three digits would step back: 10.02 * 1.002 is not 10.0."""
    scale = ValueScale(factor, factor)
    for signed in (value, -value):
        assert (scale.find_next(signed, side) - signed) * side > 0
    assert ValueScale(above=1.002).find_next(10.02, 1) == pytest.approx(10.04004)


@given(LISTS, st.integers(1, 9), st.sampled_from([1, -1]))
def test_monotone_values_extend_to_the_cap(values, num, sign):
    tune = write([values])
    trials, best, at_edge, _ = search(tune, lambda s: sign * s["optim.lr"], num)
    assert len(trials) == len(values) + num and at_edge == ["optim.lr"]
    assert best == trials[-1]["settings"]
