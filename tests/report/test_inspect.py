"""What `jaxpt inspect` shows is what training reads."""

import numpy as np
import pytest
from tiny import CORE, SEQ2SEQ, make_config, prepare, slow_but

from jaxpt.config.plan import make_plan, make_plans
from jaxpt.config.settings import to_dict
from jaxpt.errors import UserError
from jaxpt.objectives import OBJECTIVES
from jaxpt.report.inspection import passage
from jaxpt.report.inspection.rows import draw_mask, inspect_passage, inspect_rows
from jaxpt.rng import split_step, stream
from jaxpt.runs.data import make_feed
from jaxpt.text.dataset import load_text


def make(speech, objective="mlm", **changes):
    config = make_config(speech, objective, **changes)
    return prepare(config)


FORMS = {"bert": ("pairs",)}


ALL = [(n, rows) for n in OBJECTIVES for rows in FORMS.get(n, ("chunks", "packed"))]
QUICK = [case for case in ALL if case[1] != "packed" or case[0] in CORE]
of_all_forms = pytest.mark.parametrize("objective, rows", slow_but(QUICK, ALL))


# Next to those of CORE: pairs, several values or ids a position, rows read twice.
OTHERS = ("bert", "next_latent", "future_summary", "block_diffusion")
SHOWN = [(name, rows) for name, rows in QUICK if name in (*CORE, *OTHERS)]


@pytest.mark.slow_cases(
    "mlm-chunks",
    "mlm-packed",
    "bert-pairs",
    "electra-chunks",
    "electra-packed",
    "span_corruption-chunks",
    "span_corruption-packed",
)
@pytest.mark.parametrize("objective, rows", slow_but(SHOWN, ALL))
def test_every_objective_is_shown(objective, rows, speech):
    changes = {"data__rows": rows, "data__documents": "line"}
    task, tokenizer, corpora = make(speech, objective, **changes)
    text = "\n".join(inspect_rows(task, tokenizer, corpora, num_rows=2, width=90))
    assert f"data.rows={rows}" in text or rows == "chunks"
    assert "row 0" in text and "row 1" in text and "row 2" not in text
    assert ("document 1" in text) == (rows != "chunks")
    assert "visible" in text and set("█▀▄") & set(text)
    rows_shown = text[text.index("row 0") :]
    assert max(map(len, rows_shown.splitlines())) <= 90


@pytest.mark.slow
def test_the_batch_shown_is_the_batch_trained_on(speech):
    task, tokenizer, corpora = make(speech)
    rows = make_feed(task, corpora["train"])[3]
    rngs = split_step(stream(task.plan.train.seed, 3, "train"))
    batch = task.objective.corrupt(rngs["corrupt"], rows, task.vocab, task.spec)
    lines = inspect_rows(task, tokenizer, corpora, step=3, num_rows=1, width=200)
    inputs = next(line for line in lines if line.startswith("  inputs"))
    expected = tokenizer.decode(np.asarray(batch["inputs"][0])).replace("\n", "⏎")
    assert inputs.split(maxsplit=1)[1] in (expected, expected.lstrip())
    targets = next(line for line in lines if line.startswith("  targets"))
    for place, id_ in zip(
        batch["masked_positions"][0], batch["targets"][0], strict=True
    ):
        assert f"{place}:{tokenizer.token_name(int(id_))}" in targets


def test_masks_are_thinned_out_to_fit():
    lines = draw_mask(np.tri(400, dtype=bool))
    assert len(lines) == 20 and {len(line) for line in lines} == {40}
    assert lines[0] == "█▄" + " " * 38 and lines[-1] == "█" * 39 + "▄"


@pytest.mark.parametrize(
    "flags, named", [({"step": -1}, "step=-1"), ({"num_rows": 9}, "num_rows=9")]
)
def test_what_is_not_there_is_refused(flags, named, speech):
    with pytest.raises(UserError, match=named):
        inspect_rows(*make(speech), **flags)


def test_rows_an_objective_cannot_read_are_refused(speech):
    with pytest.raises(UserError, match="data.rows=pairs: mlm does not read") as caught:
        make_plan(make_config(speech, "mlm", data__rows="pairs"), ["data.rows"])
    assert "type_ids" in str(caught.value) and "is_random_next" in str(caught.value)


def views(speech, names, length=12, **changes):
    config = to_dict(make_config(speech, **changes))
    config["compare"]["overrides"] = {
        name: {"model": {"num_decoder_layers": 1}} for name in SEQ2SEQ
    }
    plans = make_plans(config, names)
    tokenizer, corpora = load_text(next(iter(plans.values())).text)
    return tokenizer, [
        passage.view(name, plan, tokenizer, corpora["train"], length)
        for name, plan in plans.items()
    ]


def strips_of(view):
    return {strip.name: strip for strip in view.strips}


@pytest.mark.slow
def test_the_page_shows_what_each_objective_hides_and_asks_for(speech):
    _, result = views(speech, CORE, 12, mlm__mask_rate=0.3)
    clm, mlm, span, electra = map(strips_of, result)
    text = clm["text"].tokens
    assert text == mlm["text"].tokens == span["text"].tokens  # one passage for all
    assert clm["input"].tokens == text[:-1]
    assert clm["targets"].tokens == text[1:]
    assert set(clm["text"].kinds) == {"plain"}
    assert set(clm["targets"].kinds) == {"target"}
    for place, kind in enumerate(mlm["text"].kinds):
        is_hidden = kind == "masked"
        targets = mlm["targets"]
        assert (targets.kinds[place] == "target") == is_hidden
        assert targets.tokens[place] == (text[place] if is_hidden else "")
        if mlm["input"].tokens[place] == "[MASK]":
            assert is_hidden and mlm["input"].kinds[place] == "replacement"
    assert mlm["text"].kinds.count("masked") == 4  # round(12 * 0.3)
    hidden = [t for t, k in zip(text, span["text"].kinds, strict=True) if k == "masked"]
    targets = [t for t in span["targets"].tokens if not t.startswith(("<", "[EOS"))]
    assert hidden == targets and len(hidden) == 2
    reads = span["input"]
    assert reads.kinds[reads.tokens.index("<extra_id_0>")] == "replacement"
    assert reads.kinds[-1] == "plain" and reads.tokens[-1] == "[EOS]"
    assert electra["replaced?"].kinds == ("target",) * 12
    masks = [np.asarray(view.mask["mask"]) for view in result]
    assert (masks[0] == np.tri(11, dtype=bool)).all() and masks[1].all()
    source, _ = result[2].mask["split"]
    assert masks[2][:source, :source].all() and not masks[2][:source, source:].any()
    assert masks[2][source:, :source].all()


def test_the_page_shows_the_label_of_a_pair(speech):
    task, tokenizer, corpora = make(speech, "bert")
    rows, batch = passage.corrupt_row(task, corpora["train"], step=0)
    for label, answer in ((rows["is_random_next"], "no"), (np.zeros(1, int), "yes")):
        labelled = batch | {"nsp_labels": label}
        terms = task.spec.terms
        made = passage.make_strips(rows, labelled, tokenizer, terms)
        strips = {strip.name: strip for strip in made}
        text = strips["text"].tokens
        assert text[0] == "[CLS]" and text.count("[SEP]") == 2
        assert strips["is B next?"].tokens == (answer,)
        assert strips["is B next?"].kinds == ("target",)


def test_strips_are_named_by_the_terms_that_an_objective_declares(speech):
    """No term is known by name: labels, answers and targets are data of the Spec."""
    task, tokenizer, corpora = make(speech, "electra")
    rows, batch = passage.corrupt_row(task, corpora["train"], step=0)
    weights = dict(zip(("even", "odd"), batch["weights"].values()))
    terms = {
        "odd": passage.Term("filled", positions="masked_positions"),
        "even": passage.Term("is it new?", targets=""),
        "pair": passage.Term(
            "which?", targets="which_labels", answers=("left", "right")
        ),
    }
    weights |= {"pair": np.ones(1)}
    weighted = batch | {"weights": weights, "which_labels": np.ones(1, int)}
    made = {s.name: s for s in passage.make_strips(rows, weighted, tokenizer, terms)}
    assert set(made) == {"text", "input", "targets", "is it new?", "which?"}
    assert made["which?"].tokens == ("right",)
    hidden = [kind == "target" for kind in made["targets"].kinds]
    assert hidden == [kind == "masked" for kind in made["text"].kinds]


def test_the_page_counts_at_the_configs_own_length(speech):
    _, (clm, mlm, _, electra) = views(speech, CORE, 12)
    assert clm.signal == {"loss": pytest.approx(23 / 24)}
    assert mlm.signal == {"loss": pytest.approx(4 / 24)}  # round(24 * 0.15)
    assert electra.signal["discriminator_loss"] == 1
    task, _, _ = make(speech, "clm")
    lengths, num_predictions = task.spec.lengths, task.spec.predictions.most
    expected = task.model.count_flops(lengths, num_predictions) / 24
    assert clm.flops == pytest.approx(expected)


@pytest.mark.parametrize("min_rate, share", [(0.001, 0.5), (0.8, 0.9)])
def test_the_page_counts_masked_tokens_as_the_predictions_of_diffusion(
    min_rate, share, speech
):
    """Its loss is a mean over all tokens, but masked tokens alone are predicted."""
    changes = {"masked_diffusion__min_rate": min_rate, "train__batch_size": 64}
    _, (result,) = views(speech, ["masked_diffusion"], 12, **changes)
    assert result.signal == {"loss": pytest.approx(share, abs=0.03)}


@pytest.mark.slow_except(
    "clm-packed",
    "ul2-packed",
    "bart-packed",
    "bilm-chunks",
    "bilm-packed",
    "clm_mlm-packed",
    "spanbert-packed",
    "prefix_lm-packed",
    "skip_gram-packed",
    "distillation-packed",
    "masked_diffusion-packed",
    "causal_distillation-chunks",
    "causal_distillation-packed",
)
@of_all_forms
def test_every_objective_has_a_view(objective, rows, speech):
    changes = {"data__rows": rows, "data__documents": "line"}
    changes["masked_diffusion__min_rate"] = 0.5  # else a row may have nothing masked
    changes["latent_prediction__horizon"] = 4  # within a row
    _, (result,) = views(speech, [objective], 16, objective=objective, **changes)
    assert result.name == objective and len(result.strips) >= 3
    for strip in result.strips:
        assert len(strip.tokens) == len(strip.kinds) and set(strip.kinds) <= set(
            passage.KINDS
        )
        # Characters are no prefixes of each other.
        assert any(strip.tokens) or strip.name == "prefix of the next token"
    kinds = {kind for strip in result.strips for kind in strip.kinds}
    assert "target" in kinds and ("replacement" in kinds) == ("masked" in kinds)
    assert result.flops > 0 and sum(result.signal.values()) > 0
    labels = result.mask["query_labels"], result.mask["key_labels"]
    assert tuple(map(len, labels)) == result.mask["mask"].shape


def test_pages_are_written_and_escape_what_they_show(speech, tmp_path):
    (tmp_path / "text.txt").write_text("<b>&amp;</b> " * 200, encoding="utf-8")
    config = make_config(tmp_path / "text.txt", tokenizer__kind="byte")
    names = ["clm", "mlm"]
    lines = inspect_passage(config, names, tmp_path / "page", length=16)
    assert lines[0].startswith("clm: predictions per token: loss 0.958;")
    assert lines[2:] == [
        str(tmp_path / "page" / f"inspect.{k}") for k in ("svg", "html")
    ]
    page = (tmp_path / "page" / "inspect.html").read_text(encoding="utf-8")
    assert page.count('<img class="mask"') == 2 and "&lt;" in page
    assert ">&<" not in page and 'class="target">' in page
    # A config of one run has no budget of a comparison, and needs none.
    config.compare.amount = 0.0
    inspect_passage(config, [], tmp_path / "all", length=16)
    image = (tmp_path / "page" / "inspect.svg").read_bytes()
    assert image.startswith(b"<svg") and len(image) > 4_000


@pytest.mark.parametrize(
    "names, length, step, output",
    [
        (["gpt"], 16, 0, "objectives=gpt: must be among clm"),
        (["clm"], 16, -1, "step=-1"),
        (["clm"], 1, 0, "data.row_length=1"),
        (["prefix_lm"], 1, 0, "data.row_length=1: prefix_lm"),
    ],
)
def test_a_page_that_cannot_be_is_refused(
    names, length, step, output, speech, tmp_path
):
    with pytest.raises(UserError, match=output):
        inspect_passage(make_config(speech), names, tmp_path / "page", length, step)
    assert not (tmp_path / "page").exists()
