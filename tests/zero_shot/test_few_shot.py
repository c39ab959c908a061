"""Prompts with solved questions, and how figures spread over them."""

import numpy as np
import pytest
from tiny_refusals import check_refusal, refused

from jaxpt.zero_shot.few_shot import ShotSpec, draw_prompts, find_spread
from jaxpt.zero_shot.questions import plain

CLASSES = [plain(f"text {i} is", ["bad", "good"], int(i < 3)) for i in range(12)]


def list_shots(prompt):
    """The texts of a prompt's shots."""
    assert prompt.endswith("\n\n")
    return prompt.removesuffix("\n\n").split("\n\n")


def test_shots_are_solved_and_parted_by_a_blank_line():
    ((draw, order, prompt),) = draw_prompts(CLASSES, ShotSpec(num_shots=3))
    assert (draw, order) == (0, 0)
    for shot in list_shots(prompt):
        number = int(shot.split()[1])
        assert shot == CLASSES[number].solved
    assert len(set(list_shots(prompt))) == 3
    question = CLASSES[0].behind(prompt)
    assert question.contexts[1] == prompt + "text 0 is"


def test_no_order_is_shown_twice():
    prompts = draw_prompts(CLASSES, ShotSpec(3, num_draws=4, num_orders=6))
    assert len({prompt for *_, prompt in prompts}) == 24


def test_no_shots_is_no_prompt():
    assert draw_prompts([], ShotSpec()) == [(0, 0, "")]


def test_classes_are_balanced_as_far_as_they_go():
    for draw, _, prompt in draw_prompts(CLASSES, ShotSpec(4, num_draws=5)):
        assert sum(shot.endswith("good") for shot in list_shots(prompt)) == 2
    for draw, _, prompt in draw_prompts(CLASSES, ShotSpec(10, num_draws=5)):
        assert sum(shot.endswith("good") for shot in list_shots(prompt)) == 3


def test_an_odd_shot_is_of_any_class():
    """Not of the class whose questions come first in the table."""
    prompts = draw_prompts(CLASSES, ShotSpec(3, num_draws=20))
    good = [sum(s.endswith("good") for s in list_shots(p)) for *_, p in prompts]
    assert set(good) == {1, 2}


def test_draws_differ_and_orders_keep_their_draw():
    prompts = draw_prompts(CLASSES, ShotSpec(6, num_draws=3, num_orders=4))
    assert [place[:2] for place in prompts] == [
        (d, o) for d in range(3) for o in range(4)
    ]
    by_draw = [
        {frozenset(list_shots(p)) for d, _, p in prompts if d == draw}
        for draw in range(3)
    ]
    assert all(len(shots) == 1 for shots in by_draw)
    assert len(set.union(*by_draw)) == 3
    assert len({prompt for *_, prompt in prompts}) == 12
    assert prompts == draw_prompts(CLASSES, ShotSpec(6, num_draws=3, num_orders=4))
    again = draw_prompts(CLASSES, ShotSpec(6, num_draws=3, num_orders=4, seed=1))
    assert again != prompts


REFUSED = """
    num_shots=13; num_shots=-1; num_draws=0; num_orders=0; num_orders=3 & num_shots=2
"""


def draw(**settings):
    draw_prompts(CLASSES, ShotSpec(**settings))


@pytest.mark.parametrize("make, parts", refused(draw, "", REFUSED))
def test_bad_settings_are_refused(make, parts, refuses):
    check_refusal(make, parts, refuses)


def test_spread_is_of_draws_and_of_orders():
    spread = find_spread(np.array([[0.4, 0.8], [0.8, 0.8]]))
    assert spread.mean == pytest.approx(0.7)
    assert spread.sd_draws == pytest.approx(np.std([0.6, 0.8], ddof=1))
    assert spread.sd_orders == pytest.approx(np.sqrt(0.08 / 2))
    assert (spread.lowest, spread.highest) == (0.4, 0.8)
    one = find_spread(np.array([[0.5]]))
    assert np.isnan([one.sd_draws, one.sd_orders]).all()
