"""The page in a browser: every control is used, and its output is that of jaxpt.

`make applets` runs it on the site of its demonstration (`JAXPT_SITE`, of the runs that
are in `JAXPT_SITE_RUNS`). It needs Node, `web/node_modules` and Chromium.
"""

import json
import os
import subprocess
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxpt
from jaxpt.evaluation.scores import SampleSpec, next_distribution
from jaxpt.evaluation.unmasking import unmask
from jaxpt.ops import masks
from jaxpt.runs.first_seeds import list_first_seeds

pytestmark = pytest.mark.browser
WEB = Path(__file__).resolve().parents[3] / "web"
CLOSE = 1e-3


@pytest.fixture(scope="module")
def seen(tmp_path_factory):
    """What was seen in the browser (`web/e2e.mjs`)."""
    folder = Path(os.environ.get("JAXPT_SITE_SHOTS") or tmp_path_factory.mktemp("seen"))
    site, out = Path(os.environ["JAXPT_SITE"]).resolve(), folder.resolve() / "seen.json"
    out.parent.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(["node", "e2e.mjs", site, out], cwd=WEB, text=True)
    assert out.exists(), f"web/e2e.mjs ended with {done.returncode}"
    return json.loads(out.read_text())


@pytest.fixture(scope="module")
def runs():
    """`runs(name)`: the run behind a name that the page shows."""
    held = Path(os.environ["JAXPT_SITE_RUNS"]).iterdir()
    folders = list_first_seeds(sorted(path for path in held if path.is_dir()))
    loaded = {}

    def load(name):
        if name not in loaded:
            loaded[name] = jaxpt.load(folders[name])
        return loaded[name]

    return load


def seen_in(result, applet):
    own = [each for each in result["observations"] if each["applet"] == applet]
    if not own:
        pytest.skip(f"no model of the site serves the applet {applet}")
    return own


def compare(probabilities, expected):
    """Holds probabilities to arrays [V] by position."""
    assert probabilities
    for each in probabilities:
        probability = float(expected[each["position"]][each["token_id"]])
        assert each["probability"] == pytest.approx(probability, abs=CLOSE), each


def list_banned(run, is_answer=False):
    return list(run._loaded.program.task.find_banned(is_answer))


def forbid(logits, banned):
    logits = np.array(logits, np.float32)
    logits[..., list(banned)] = -np.inf
    return jnp.asarray(logits)


def next_logits(run, ids, prompt_length):
    """Logits [V] of what follows the ids, of which the first were a prompt."""
    decoder = run._loaded.program.decoder
    params, ids = decoder.convert_params(run.params), np.asarray(ids, np.int32)
    room = 1 + len(ids) - prompt_length
    lengths = np.array([prompt_length])
    logits, cache = decoder.prefill(params, ids[None, :prompt_length], lengths, room)
    for id_ in ids[prompt_length:]:
        logits, cache = decoder.step(params, jnp.array([id_]), cache)
    return logits[0]


def test_every_control_works_and_nothing_is_fetched(seen):
    assert seen["checks"] and not seen["console_errors"]
    assert [each for each in seen["checks"] if not each["ok"]] == []


def test_the_next_token_is_drawn_from_jaxpts_distribution(seen, runs):
    for each in seen_in(seen, "generate"):
        run = runs(each["model"])
        logits = next_logits(run, each["ids"], each["prompt_length"])
        scores, place = forbid(logits, list_banned(run)), len(each["ids"])
        spec = SampleSpec(**each["settings"])
        compare(each["probabilities"], {place: next_distribution(scores, spec)})
        compare(each["before"], {place: jax.nn.softmax(scores)})


def test_masks_are_filled_with_jaxpts_probabilities(seen, runs):
    for each in seen_in(seen, "masks"):
        run, ids = runs(each["model"]), np.array(each["ids"])[None]
        if each.get("is_beside"):  # from the left alone, one place earlier
            logits = run.model._logits(run.params, ids, masks.causal())[0]
            logits = jnp.concatenate([jnp.zeros_like(logits[:1]), logits[:-1]])
            never = list_banned(run)
        else:
            logits = run.model.fill_logits(run.params, ids)[0]
            never = run.task.nonwords
        expected = jax.nn.softmax(forbid(logits, never))
        compare(each["probabilities"], np.asarray(expected))
        compare(each["true_tokens"], np.asarray(expected))


def test_the_discriminator_marks_what_it_marks_in_jaxpt(seen, runs):
    for each in seen_in(seen, "fake"):
        run, ids = runs(each["model"]), np.array(each["ids"])
        logits = run.model.replaced_logits(run.params, ids[None])[0]
        expected = np.asarray(jax.nn.sigmoid(logits))
        assert len(each["probabilities"]) == len(ids)
        for prediction in each["probabilities"]:
            probability = expected[prediction["position"]]
            assert prediction["probability"] == pytest.approx(probability, abs=CLOSE)
        masked = np.array(each["generator_ids"]) == run.tokenizer.vocab.mask
        assert masked.any() and not (np.array(each["fakes"]) & ~masked).any()


def test_spans_are_written_as_jaxpt_writes_them(seen, runs):
    for each in seen_in(seen, "spans"):
        run, ids = runs(each["model"]), np.array(each["ids"])[None]
        written = np.array(each["decoder_ids"])
        states = run.model.answer_states(run.params, ids, written[None])
        call = {"params": run.params}
        logits = run.model.apply(call, states, method="logits")[0]
        scores = forbid(logits, list_banned(run, is_answer=True))
        compare(each["probabilities"], np.asarray(jax.nn.softmax(scores)))
        assert written[1:].tolist() == scores[:-1].argmax(-1).tolist()


def test_texts_are_unmasked_as_jaxpt_unmasks_them(seen, runs):
    for each in seen_in(seen, "unmask"):
        run, prompt = runs(each["model"]), np.array(each["prompt_ids"])[None]
        expected = unmask(
            run.model.fill_logits,
            run.params,
            prompt,
            each["settings"]["tokens"],
            jax.random.key(0),
            SampleSpec(temperature=0),
            run.tokenizer.vocab.mask,
            tuple(list_banned(run)),
            each["settings"]["steps"],
        )
        assert each["ids"] == [*prompt[0], *np.asarray(expected)[0]]
