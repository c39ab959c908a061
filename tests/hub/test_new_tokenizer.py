"""An imported model with another tokenizer."""

import json

import jax
import numpy as np
import pytest
from hub.test_families import Fixture
from hub.test_runs import make_tokenizer, settings, write_folder

from jaxpt.hub.export import export_run
from jaxpt.hub.imports import import_run
from jaxpt.hub.new_tokenizer import map_tokens, move_text_form
from jaxpt.runs.workdir import load_run
from jaxpt.text.tokens import tokenizer as tokenizers
from jaxpt.text.tokens.training import train_subword
from jaxpt.text_form import TextForm

SPECIALS = ("pad", "unk", "cls", "sep", "mask", "bos", "eos")
WORDS = "ab cd ab cd abcd cdab zz"


def make_new(kind="wordpiece", specials=SPECIALS, size=40):
    return train_subword(kind, [WORDS * 9], size, specials, 3)


def names_of(tokenizer):
    return [tokenizer.token_name(i) for i in range(tokenizer.vocab.size)]


def test_each_new_token_has_its_old_ones():
    """Pieces of words that both have, parts of others, and what is unknown."""
    old, new = make_tokenizer(), make_new()
    names, parts = names_of(new), map_tokens(old, new)
    vocab = old.vocab
    for role in SPECIALS:
        assert parts[getattr(new.vocab, role)] == [getattr(vocab, role)]
    assert parts[new.vocab.sentinels[1]] == [vocab.sentinels[1]]
    assert parts[names.index("a")] == [old.find_id("a")]
    assert parts[names.index("##b")] == [old.find_id("##b")]
    pieces = [old.find_id(name) for name in ("a", "##b")]
    assert parts[names.index("ab")] == pieces
    assert parts[names.index("zz")] == []  # [UNK]
    assert len(parts) == new.vocab.size


def test_a_space_before_a_word_is_no_difference():
    old, new = make_tokenizer(), make_new("bpe", size=300)
    parts, names = map_tokens(old, new), names_of(new)
    assert parts[names.index("␣ab")] == [old.find_id("a"), old.find_id("##b")]
    assert parts[names.index("b")] == [old.find_id("##b")]  # inside a word
    # A byte that is no text.
    byte = new.vocab.pieces.index(b"\xff")
    assert parts[byte] == []


@pytest.mark.parametrize("family", ["bert", "gpt2", "t5", "electra"])
def test_an_import_with_another_tokenizer(family, tmp_path):
    folder, new = tmp_path / "theirs", make_new()
    if family == "electra":
        heads = ("generator", "discriminator")
        small, large = (Fixture(f"electra-{head}") for head in heads)
        shared = large.tensors.items()
        small.tensors |= {
            k: v for k, v in shared if k.startswith("electra.embeddings.")
        }
        for head, fixture in zip(heads, (small, large), strict=True):
            write_folder(folder / head, fixture)
    else:
        write_folder(folder, Fixture(family))
    tokenizers.save(new, tmp_path / "new.json")
    config = settings(tmp_path)
    import_run(folder, tmp_path / "old", config)
    import_run(folder, tmp_path / "run", config, (), str(tmp_path / "new.json"))
    (old, _, before, _), (program, tokenizer, after, _) = (
        load_run(tmp_path / name) for name in ("old", "run")
    )
    assert tokenizer.vocab.pieces == new.vocab.pieces
    assert program.task.model_spec.vocab_size == new.vocab.size
    parts = map_tokens(make_tokenizer(), new)
    num_tables = 0
    pairs = zip(jax.tree.leaves_with_path(before), jax.tree.leaves(after), strict=True)
    for (path, one), two in pairs:
        if one.shape == two.shape:
            np.testing.assert_array_equal(one, two, err_msg=str(path))
            continue
        num_tables += 1
        one, two = np.asarray(one), np.asarray(two)
        axis = one.shape.index(30)
        assert two.shape[axis] == new.vocab.size
        for id_, ids in enumerate(parts):
            ids = ids or make_tokenizer().vocab.ordinary_ids
            mean = one.take(ids, axis).mean(axis)
            np.testing.assert_allclose(two.take(id_, axis), mean, rtol=1e-5, atol=1e-7)
    assert num_tables
    forms = [each.task.vocab.text_form for each in (old, program)]
    assert forms[1] == move_text_form(forms[0], old.task.vocab, new.vocab)
    if family != "electra":
        export_run(tmp_path / "run", tmp_path / "again")
        import_run(tmp_path / "again", tmp_path / "back", config)
        back = load_run(tmp_path / "back")[2]
        jax.tree.map(np.testing.assert_array_equal, back, after)


def test_special_tokens_move_by_role():
    old, new = make_tokenizer(), make_new(specials=SPECIALS[::-1])
    one, two = old.vocab, new.vocab
    form = TextForm((one.cls,), (one.sep,), bos=one.bos, ends=(one.eos, one.sep))
    moved = move_text_form(form, one, two)
    assert moved == TextForm(
        (two.cls,), (two.sep,), bos=two.bos, ends=(two.eos, two.sep)
    )
    few = make_new(specials=("pad", "unk", "cls", "sep", "mask")).vocab
    assert move_text_form(form, one, few) == TextForm(
        (few.cls,), (few.sep,), ends=(few.sep,)
    )


def test_what_cannot_be_exchanged_is_one_line(tmp_path, refuses):
    folder, config = tmp_path / "theirs", settings(tmp_path)
    write_folder(folder, Fixture("bert"))
    new = make_new(specials=("pad", "unk", "mask"))
    tokenizers.save(new, tmp_path / "new.json")
    run = tmp_path / "run"
    with refuses("new_tokenizer: must have [CLS], which the model puts around texts"):
        import_run(folder, run, config, (), str(tmp_path / "new.json"))
    with refuses("none.json"):
        import_run(folder, run, config, (), str(tmp_path / "none.json"))
    assert not run.exists()


def test_suppressed_ids_of_the_old_tokenizer_are_not_kept(tmp_path):
    folder, new = tmp_path / "theirs", tmp_path / "new.json"
    write_folder(folder, Fixture("gpt2"))
    options = {"suppress_tokens": [9], "num_beams": 2}
    (folder / "generation_config.json").write_text(json.dumps(options))
    tokenizers.save(make_new(), new)
    run, config = tmp_path / "run", settings(tmp_path)
    lines = import_run(folder, run, config, (), str(new))
    assert any("does not apply suppress_tokens=[9]" in line for line in lines)
    assert load_run(run)[0].task.generation == (("num_beams", 2),)
