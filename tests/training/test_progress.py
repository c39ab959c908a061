"""A run tells the objectives that ask how much of it is done."""

import jax
import numpy as np
import pytest
from tiny import make_config, prepare

from jaxpt.learn.state import make_state
from jaxpt.runs.data import make_feed
from jaxpt.runs.train_calls import make_train_call


@pytest.mark.slow
def test_the_mask_rate_falls_while_a_run_trains(speech):
    changes = {"mlm__mask_rate": 0.5, "mlm__mask_rate_end": 0.1, "train__steps": 4}
    task, _, corpora = prepare(make_config(speech, "mlm", **changes))
    feed = make_feed(task, corpora["train"])
    stack = jax.tree.map(lambda *rows: np.stack(rows), *(feed[i] for i in range(4)))
    params = task.model.init_params(jax.random.key(0))
    state = make_state(params, task.optimizer)
    _, metrics = jax.jit(make_train_call(task))(state, stack, 0)
    # 0.5, 0.4, 0.3 and 0.2 of 24 tokens in each of 8 rows.
    assert metrics["loss"][1].tolist() == [8 * n for n in (12, 10, 7, 5)]
