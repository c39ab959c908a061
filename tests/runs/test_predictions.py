"""Texts of a run that writes by unmasking; those from left to right: test_cli.py."""

import jax
import numpy as np
import pytest
from tiny import make_config, slow, write_run

from jaxpt.evaluation.scores import SampleSpec
from jaxpt.evaluation.unmasking import unmask
from jaxpt.runs.predictions import generate_texts, read_prompts
from jaxpt.runs.workdir import load_run


@pytest.fixture(scope="module")
def run(speech, tmp_path_factory):
    """A masked diffusion run before its first step."""
    folder = tmp_path_factory.mktemp("diffusion")
    config = make_config(speech, "masked_diffusion")
    return load_run(write_run(config, folder / "run"))


@pytest.mark.slow
def test_each_prompt_has_its_texts_of_a_length(run):
    prompts = ["the ", "a great "]
    texts = generate_texts(run, prompts, 5, num_samples=2, seed=1, num_steps=3)
    assert len(texts) == 4 and len(set(texts)) > 2
    for text, prompt in zip(texts, [p for p in prompts for _ in range(2)], strict=True):
        # An [EOS] may end it; a character is a token, and no special one is written.
        assert text.startswith(prompt) and len(text) <= len(prompt) + 5
        assert "[" not in text
    assert texts == generate_texts(run, prompts, 5, num_samples=2, seed=1, num_steps=3)
    assert texts != generate_texts(run, prompts, 5, num_samples=2, seed=2, num_steps=3)
    # Without a number, as many as the model reads in training.
    (whole,) = generate_texts(run, ["the "], 0, temperature=0.0)
    assert len(whole) <= 24


@pytest.mark.parametrize(
    "changes, output",
    [
        slow({"num_beams": 2}, "num_beams=2"),
        slow({"repetition_penalty": 1.5}, "repetition_penalty=1.5"),
        ({"num_steps": 6}, "num_steps=6: must be from 1 to the 5 tokens"),
        ({"num_tokens": 40}, "num_tokens=40"),
        ({"prompts": [""]}, "num_tokens=5: must be at least 1 and, with the prompt"),
    ],
)
def test_what_unmasking_has_not_is_refused(changes, output, run, refuses):
    with refuses(output):
        generate_texts(**{"run": run, "prompts": ["a"], "num_tokens": 5} | changes)


def test_others_do_not_unmask(speech, tmp_path, refuses):
    run = write_run(make_config(speech, "clm"), tmp_path / "run")
    with refuses("num_steps=2: must be 0 for a clm run"):
        generate_texts(load_run(run), ["a"], 4, num_steps=2)


def test_a_run_that_can_do_both_unmasks_where_steps_are_given(speech, tmp_path):
    """As the same parameters write with either of its networks' bases."""
    config = make_config(speech, "dual", model__init_std=0.3)
    run = load_run(write_run(config, tmp_path / "run"))
    (written,) = generate_texts(run, ["the "], 6, temperature=0.0)
    unmasked = [
        generate_texts(run, ["the "], 6, temperature=0.0, num_steps=n)[0]
        for n in (1, 6)
    ]
    assert len({written, *unmasked}) == 3
    program = run.program
    ids = run.tokenizer.encode_prompt("the ")[None]
    expected = unmask(
        program.task.model.fill_logits,
        run.params,
        ids,
        6,
        jax.random.key(0),
        SampleSpec(temperature=0.0),
        run.tokenizer.vocab.mask,
        tuple(program.task.nonwords),
        num_steps=1,
    )
    assert unmasked[0] == "the " + run.tokenizer.decode(np.asarray(expected[0]))
    causal = write_run(
        make_config(speech, "clm", model__init_std=0.3), tmp_path / "clm"
    )
    other = load_run(causal)._replace(params=run.params)
    assert generate_texts(other, ["the "], 6, temperature=0.0) == [written]


def test_prompts_of_a_file_end_at_newlines_alone(tmp_path, refuses):
    path = tmp_path / "prompts.txt"
    path.write_bytes("a\u2028b\r\nc\x85d\x0c\n".encode())
    assert read_prompts([], str(path)) == ["a\u2028b", "c\x85d\x0c"]
    for text in ("", "\n", "a\n\nb"):
        path.write_text(text)
        with refuses(f"prompt_file={path}", "no empty one"):
            read_prompts([], str(path))
