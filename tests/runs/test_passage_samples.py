"""Samples of a run: which forms there are, and that each says what the model did."""

import jax.numpy as jnp
import numpy as np
import pytest
from tiny import make_config, prepare, slow_but, write_run

from jaxpt.evaluation import samples
from jaxpt.nn.networks.electra import Electra
from jaxpt.nn.networks.one_stack import MaskedLM
from jaxpt.report.figures import FORMS as TITLES
from jaxpt.runs import passage_samples, writer
from jaxpt.runs.predictions import generate_texts
from jaxpt.runs.program import Program
from jaxpt.runs.workdir import load_corpora, load_run

FORMS = {
    "clm": ["continuation"],
    "mlm": ["fills"],
    "bert": ["fills"],
    "spanbert": ["fills"],
    "electra": ["fakes", "fills"],
    "span_corruption": ["spans"],
    "bart": ["rewriting"],
    "prefix_lm": ["continuation"],
    "ul2": ["spans"],
    "clm_mlm": ["continuation", "fills"],
    "masked_input_clm": ["continuation"],
    "dual": ["continuation", "fills"],
    "mixture": ["continuation", "fills"],
    "bilm": [],
    "selective_clm": ["continuation"],
    "adaptive_mlm": ["fills"],
    "fill_in_the_middle": ["gaps", "continuation"],
    "multi_token": ["continuation"],
    "multi_token_heads": ["continuation"],
    "token_order": ["continuation"],
    "prefix_token": ["continuation"],
    "future_summary": ["continuation"],
    "next_latent": ["continuation"],
    "latent_prediction": ["continuation"],
    "masked_diffusion": ["continuation", "fills"],
    "hybrid_diffusion": ["continuation", "fills"],
    "block_diffusion": ["continuation", "fills"],
    "skip_gram": [],
}


def open_task(speech, objective, **changes):
    return prepare(make_config(speech, objective, **changes))


def take(form, task, tokenizer, corpora, num=1):
    program = Program(task)
    length = passage_samples.passage_length(task)
    passages = passage_samples.choose_passages(corpora["valid"], length, num)
    params = program.init_state(0).params
    taken = passage_samples.make_taker(form, program, tokenizer, passages)(params)
    return [tokenizer.decode(row) for row in passages], taken


@pytest.mark.parametrize("objective", sorted({*FORMS} - {"bert", "skip_gram"}))
def test_each_network_shows_what_it_can_do(objective, speech):
    task, *_ = open_task(speech, objective)
    assert passage_samples.list_forms(task) == FORMS[objective]


def test_the_report_has_a_title_for_each_form():
    assert {form for forms in FORMS.values() for form in forms} == set(TITLES)


def test_variants_show_what_their_networks_can_do(speech):
    more = {"model__num_decoder_layers": 1}
    task, *_ = open_task(speech, "prefix_lm", **more)
    assert passage_samples.list_forms(task) == ["continuation"]
    task, *_ = open_task(speech, "electra", electra__variant="replace_mlm")
    assert passage_samples.list_forms(task) == [
        "fills"
    ]  # its second network marks nothing


def test_fills_are_right_where_the_text_has_them(speech, monkeypatch):
    task, *more = open_task(speech, "mlm")
    space = int(more[0].encode(" ")[0])

    def fill_with_spaces(self, params, tokens):
        expected = 5.0 * (jnp.arange(task.vocab.size) == space)
        of_specials = 9.0 * jnp.asarray(task.vocab.is_special)  # never written
        shape = *tokens.shape, task.vocab.size
        return jnp.broadcast_to(expected + of_specials, shape)

    monkeypatch.setattr(MaskedLM, "fill_logits", fill_with_spaces)
    texts, taken = take("fills", task, *more, num=8)
    marks = {"right": set(), "wrong": set()}
    for text, sample in zip(texts, taken):
        place = 0
        for piece in sample:
            if piece.kind == "given":
                assert text[place : place + len(piece.text)] == piece.text
            else:
                assert piece.text == " "
                marks[piece.kind].add(text[place])
            place += len(piece.truth or piece.text)
        assert place == len(text)
    assert marks["right"] == {" "} and marks["wrong"] and " " not in marks["wrong"]


def test_fakes_are_told_from_originals(speech, monkeypatch):
    task, *more = open_task(speech, "electra")
    star = int(more[0].encode("x")[0])

    def fill(self, params, tokens):
        shape = *tokens.shape, task.vocab.size
        return jnp.broadcast_to(1e4 * (jnp.arange(shape[-1]) == star), shape)

    def spot(self, params, tokens):  # the first fakes of a row, and what opens it
        places = jnp.arange(tokens.shape[1])
        is_fake = (tokens == star) & (places < 12)
        return 2.0 * is_fake + 1.0 * (places < 1) - 0.01 * places - 5.0

    monkeypatch.setattr(Electra, "fill_logits", fill)
    monkeypatch.setattr(Electra, "replaced_logits", spot)
    (text,), (sample,) = take("fakes", task, *more)
    kinds = [piece.kind for piece in sample if piece.kind != "given"]
    # Tokens 3 and 10 are found and 17 is not; one original is suspected instead.
    assert kinds == ["alarm", "caught", "caught", "missed"]
    assert "".join(piece.truth or piece.text for piece in sample) == text
    fakes = [piece for piece in sample if piece.kind in ("caught", "missed")]
    assert [piece.truth for piece in fakes] == [text[3], text[10], text[17]]
    assert {piece.text for piece in fakes} == {"x"}


def test_spans_are_read_behind_their_sentinels(speech, monkeypatch):
    task, tokenizer, corpora = open_task(speech, "span_corruption")
    length = passage_samples.passage_length(task)
    (row,) = passage_samples.choose_passages(corpora["valid"], length, 1)
    most = task.spec.needs.num_sentinels
    (start, stop), *others = samples.hide_spans(np.zeros(length, bool), most)
    prompts_read = {}

    def generate(decoder, params, prompts, lengths, num_tokens, **more):
        prompts_read["prompt"] = prompts
        answer = [task.vocab.sentinels[0], *row[start:stop], task.vocab.eos]
        tokens = jnp.array([answer], jnp.int32)
        return tokens, jnp.array([len(answer)]) + 0 * lengths

    monkeypatch.setattr(writer, "generate", generate)
    _, (sample,) = take("spans", task, tokenizer, corpora)
    assert [piece.kind for piece in sample[:3]] == ["given", "right", "given"]
    assert sample[1].text == tokenizer.decode(row[start:stop])
    # Of the others nothing was written.
    wrong = [piece for piece in sample if piece.kind == "wrong"]
    assert [(piece.text, piece.truth) for piece in wrong] == [
        ("", tokenizer.decode(row[slice(*span)])) for span in others
    ]
    assert prompts_read["prompt"].shape == (1, length - 2 * len([0, *others]) + 1)


def test_too_little_text_or_room_gives_no_passages(speech):
    task, _, corpora = open_task(speech, "clm")
    valid = corpora["valid"]
    assert passage_samples.passage_length(task) == 23
    assert passage_samples.choose_passages(valid, 23, 2).shape == (2, 23)
    assert len(passage_samples.choose_passages(valid, 23, 0)) == 0
    assert (
        len(passage_samples.choose_passages(valid, passage_samples.MIN_LENGTH - 1, 2))
        == 0
    )
    assert len(passage_samples.choose_passages(valid, valid.num_tokens + 1, 2)) == 0


WRITERS = ["prefix_lm", "prefix_lm/seq2seq", "ul2", "bart", "masked_diffusion"]
WRITERS += ["block_diffusion"]


@pytest.mark.parametrize("name", slow_but(("block_diffusion",), WRITERS))
def test_samples_are_what_generate_writes(name, speech, tmp_path):
    objective, _, form = name.partition("/")
    changes = {"model__num_decoder_layers": 1} if form else {}
    changes |= {"model__init_std": 0.3}
    run = write_run(make_config(speech, objective, **changes), tmp_path / "run")
    program, tokenizer, params, _ = load_run(run)
    corpora = load_corpora(run, program.task, tokenizer)
    length = passage_samples.passage_length(program.task)
    passages = passage_samples.choose_passages(corpora["valid"], length, 2)
    (form, *_) = passage_samples.list_forms(program.task)
    taker = passage_samples.make_taker(form, program, tokenizer, passages)
    taken = taker(params)
    drawn = {"temperature": 0.8, "top_p": 0.95}
    num, texts = length - length // 2, []
    if form == "continuation":
        prompts = [sample[0].text for sample in taken]
        texts = generate_texts(load_run(run), prompts, num, **drawn)
        likeliest = generate_texts(load_run(run), prompts, num, temperature=0.0)
        assert texts != likeliest
    for place, (row, sample) in enumerate(zip(passages, taken)):
        output = [piece for piece in sample if piece.kind != "written"]
        spelt = "".join(piece.truth or piece.text for piece in output)
        if form != "rewriting":
            assert spelt == tokenizer.decode(row)
        if form == "continuation":
            prompt, *rest = sample
            new = "".join(piece.text for piece in rest if piece.kind == "written")
            begins = "" if program.task.model.HAS_DECODER else prompt.text
            if place == 0 or program.decoder is not None:
                assert texts[place] == begins + new and new
        elif form == "rewriting":
            assert "".join(piece.text for piece in sample)
