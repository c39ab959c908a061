"""Text of artificial languages: fresh rows, finite sets, validation, errors."""

import dataclasses

import numpy as np
import pytest
from languages_text import HMM, SMALL, spec_of, task_of

from jaxpt.cli.main import main
from jaxpt.errors import UserError
from jaxpt.languages import LANGUAGES, is_language
from jaxpt.languages.parameters import (
    CHARACTERS,
    FINITE,
    FRESH,
    VALID,
    read_language,
)
from jaxpt.objectives import OBJECTIVES
from jaxpt.runs.data import describe_rows, held_rows, make_feed
from jaxpt.text.dataset import load_text
from jaxpt.text.library import open_stores
from jaxpt.text.tokens.tokenizer import TokenizerSpec
from jaxpt.training.milestones import count_words_of_row


def documents_of(corpus):
    starts = corpus.doc_starts
    return [corpus.read(a, b).tolist() for a, b in zip(starts[:-1], starts[1:])]


def test_characters_are_letters_and_digits_in_order():
    assert CHARACTERS == "".join(sorted(CHARACTERS)) and len(CHARACTERS) > 2**14
    assert CHARACTERS.isalnum() and len(set(CHARACTERS)) == len(CHARACTERS)
    assert set(SMALL) == set(LANGUAGES)


@pytest.mark.parametrize("name", SMALL)
def test_ids_are_the_symbols(name, tmp_path):
    """Special ids are outside; nothing merges; documents are those of the language."""
    tokenizer, splits = load_text(spec_of(SMALL[name], tmp_path))
    named = read_language(SMALL[name])
    num = named.language.num_symbols
    assert tokenizer.vocab.ordinary_ids.tolist() == list(range(2, 2 + num))
    for split, stream, size in (("train", FINITE, 64), ("valid", VALID, 32)):
        documents = np.array(documents_of(splits[split].parts[0]))
        assert (documents - 2 == named.read(stream, np.arange(size))).all()
    assert splits["train"].fingerprint != splits["valid"].fingerprint


def test_streams_are_different_and_a_function_of_the_numbers():
    named = read_language(HMM)
    streams = [named.read(stream, np.arange(50)) for stream in (FRESH, FINITE, VALID)]
    rows = {row.tobytes() for stream in streams for row in stream}
    assert len(rows) == 150
    some = np.array([7, 3, 7])
    assert (named.read(FRESH, some) == streams[0][some]).all()
    other = read_language(HMM.replace("states=4", "states=4,seed=1"))
    assert other.fingerprint != named.fingerprint
    assert (other.language.transitions != named.language.transitions).any()


def test_the_same_parameters_are_the_same_language():
    named = read_language("hmm:symbols=12,states=4,seed=0")
    assert named.path == read_language("hmm:states=4,symbols=12,fresh=yes").path
    assert is_language("hmm:") and not is_language("hmm") and not is_language("x:hmm:")


@pytest.mark.parametrize("rows", ["chunks", "windows", "packed"])
def test_fresh_rows_are_whole_documents(rows, tmp_path):
    path = "facts:pairs=8,symbols=8,width=1"
    task, tokenizer, corpora = task_of(path, tmp_path, data__rows=rows)
    language = read_language(path).language
    possible = {row.tobytes() for row in language.table.astype(np.int32)}
    feed = make_feed(task, corpora["train"])
    batch = feed[5]
    eos = tokenizer.vocab.eos
    for row in batch["tokens"]:
        documents = row[row != tokenizer.vocab.pad].tolist()
        parts = [documents[i : i + 5] for i in range(0, len(documents), 5)]
        whole = [part for part in parts if len(part) == 5]
        assert len(whole) == 4  # of 24 tokens
        for *symbols, end in whole:
            assert end == eos
            ids = np.array(symbols, np.int32) - 4
            assert ids.tobytes() in possible
    if rows == "packed":
        assert (
            batch["segment_ids"][0].tolist()
            == np.repeat([1, 2, 3, 4, 0], [5, 5, 5, 5, 4]).tolist()
        )


def test_rows_are_a_function_of_the_seed_and_the_step(tmp_path):
    task, _, corpora = task_of(HMM, tmp_path)
    feed, again = (make_feed(task, corpora["train"]) for _ in range(2))
    stack = feed.stack(0, 6)
    for step in (5, 0, 3):
        assert (again[step]["tokens"] == stack["tokens"][step]).all()
    half = make_feed(task, corpora["train"], lambda size: range(size // 2, size))
    assert (half[3]["tokens"] == stack["tokens"][3][4:]).all()
    rows = {row.tobytes() for step in stack["tokens"] for row in step}
    assert len(rows) == 48  # none comes again
    train = dataclasses.replace(task.plan.train, seed=1)
    plan = dataclasses.replace(task.plan, train=train)
    other = make_feed(dataclasses.replace(task, plan=plan), corpora["train"])
    rows |= {row.tobytes() for step in range(6) for row in other[step]["tokens"]}
    assert len(rows) == 96


def test_a_finite_text_is_read_in_epochs(tmp_path):
    path = SMALL["pcfg"].replace("documents=64", "fresh=no,documents=16")
    task, _, corpora = task_of(
        path, tmp_path, data__row_length=12, tokenizer__specials=("pad",)
    )
    feed = make_feed(task, corpora["train"])
    rows = [{row.tobytes() for row in feed[step]["tokens"]} for step in range(4)]
    assert rows[0] | rows[1] == rows[2] | rows[3]
    assert {
        row.tobytes() for row in (read_language(path).read(FINITE, np.arange(16)) + 1)
    }


def test_validation_is_the_same_for_all_rows_of_training(tmp_path):
    splits = [
        load_text(spec_of(path, tmp_path))[1]
        for path in (HMM, HMM.replace("hmm:", "hmm:fresh=no,"))
    ]
    valid = [documents_of(each["valid"].parts[0]) for each in splits]
    assert valid[0] == valid[1] and len(valid[0]) == 32


def test_validation_of_facts_is_of_other_queries(tmp_path):
    _, splits = load_text(spec_of(SMALL["facts"], tmp_path))
    train, valid = (documents_of(splits[name].parts[0]) for name in ("train", "valid"))
    assert not {*map(tuple, train)} & {*map(tuple, valid)}


def test_a_prepared_text_is_the_finite_one(tmp_path):
    spec = spec_of(HMM, tmp_path)
    _, [(store, _)], valid = open_stores(spec, folder=tmp_path / "store")
    assert valid is None and len(store.labels) == 64
    _, splits = load_text(spec_of(str(tmp_path / "store"), tmp_path))
    assert splits["train"].parts[0].fresh is None
    tokens = read_language(HMM).read(FINITE, np.arange(1)) + 2
    assert splits["train"].parts[0].read(0, 24).tolist() == tokens[0].tolist()


def test_languages_mix(tmp_path):
    mixture = tuple(f"{HMM},seed={seed}={weight}" for seed, weight in ((0, 1), (1, 3)))
    _, splits = load_text(spec_of("", tmp_path, mixture=mixture))
    assert splits["train"].fractions == (0.25, 0.75)
    assert all(part.fresh for part in splits["train"].parts)


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_every_objective_reads_rows_of_a_language(objective, tmp_path):
    settings = {"data__documents": "file"}
    if objective == "bert":  # whose pairs are of several sentences
        settings["bert__sentence_task"] = "none"
    task, _, corpora = task_of(HMM, tmp_path, objective, **settings)
    rows = make_feed(task, corpora["train"])[0]
    held = held_rows(task, corpora["valid"], 4)
    assert rows["tokens"].shape == (8, 24) and set(held) | {"index"} == set(rows)
    assert set(rows) <= task.spec.READS | {"index"}


REFUSED = {
    "hmm:states=1": "states=1: must be from 2 to 1024",
    "hmm:states=1e3": "states=1e3: must be a whole number, from 2 to 1024",
    "hmm:state=4": "state: unknown parameter (did you mean states?)",
    "hmm:4": "4: unknown parameter",
    "hmm:states": "states: must be PARAMETER=VALUE",
    "hmm:states=4,states=5": "states=5: must be named once",
    "hmm:seed=-1": "seed=-1: must be at least 0",
    "hmm:transitions=nan": "transitions=nan: must be from 0.001 to 1000",
    "hmm:transitions=0": "transitions=0.0: must be from 0.001 to 1000",
    "hmm:states=4,transitions=0.001": "transitions=0.001: must be such that no states "
    "absorb: with seed=0 the second eigenvalue is",
    "hmm:stay=0.99": "stay=0.99: must be such that no states absorb",
    "hmm:stay=1": "stay=1.0: must be at least 0 and below 1",
    "hmm:length=1": "length=1: must be from 2 to 65536",
    "hmm:documents=0": "documents=0: must be from 1 to",
    "hmm:fresh=perhaps": "fresh=perhaps: must be True or False",
    "hmm:states=4:test": "the split 'test' must be one of train, valid",
    "pcfg:leaf=0.5": "leaf=0.5: must be above 0.55: a nonterminal becomes 1 others on "
    "average (the spectral radius), so documents do not end",
    "pcfg:leaf=0.55": "leaf=0.55: must be above 0.55",
    "pcfg:leaf=1": "leaf=1.0: must be between 0 and 1, both excluded",
    "pcfg:nonterminals=65": "nonterminals=65: must be from 1 to 64",
    "copy:letters=1": "letters=1: must be from 2 to 8192",
    "star:names=3": "names=3: must be at least 9, the nodes of a graph of degree=2 "
    "and arm=5",
    "star:arm=3,names=5": "valid_documents=1000: must be fewer, or the other "
    "parameters larger: 100% of all documents",
    "star:degree=1": "degree=1: must be from 2 to 256",
    "facts:pairs=10,symbols=3": "pairs=10: must be at most 9, the keys of width=2 with "
    "symbols=3",
    "facts:queries=1": "queries=1.0: must be such that one of pairs=500 is left",
    "facts:directions=left": "directions=left: must be one of both, forward, backward",
    "recall:symbols=7": "symbols=7: must be even",
    "recall:pairs=64": "pairs=64: must be at most 63, the keys of symbols=128",
    "recall:length=14": "length=14: must be even and at least 16 with pairs=4",
    "recall:power=0": "power=0.0: must be above 0, at most 1",
}


@pytest.mark.parametrize("path", REFUSED)
def test_parameters_without_a_language_are_refused(path, tmp_path):
    with pytest.raises(UserError) as caught:
        load_text(spec_of(path, tmp_path))
    line = str(caught.value)
    assert line.startswith(f"data.path={path}: ") and REFUSED[path] in line
    assert "\n" not in line and caught.value.exit_code == 2


@pytest.mark.parametrize("path", ["hmm:transitions=0.001,states=4", "star:names=3"])
def test_the_command_line_refuses_them(path, tmp_path, capsys):
    code = main(["prepare", "--data", path, "--to", str(tmp_path / "store")])
    lines = capsys.readouterr().err.splitlines()
    assert code == 2 and len(lines) == 1 and f"data.path={path}: " in lines[0]
    assert not (tmp_path / "store").exists()


SETTINGS = {
    "label_field": ("data.label_field=x: must be ''", {"label_field": "x"}),
    "limit_chars": ("data.limit_chars=9: must be 0", {"limit_chars": 9}),
}


@pytest.mark.parametrize("name", SETTINGS)
def test_settings_that_a_language_cannot_have_are_refused(name, tmp_path):
    line, changes = SETTINGS[name]
    with pytest.raises(UserError, match=line):
        load_text(spec_of(HMM, tmp_path, **changes))


@pytest.mark.parametrize("kind", ["byte", "bpe", "unigram", "wordpiece"])
def test_tokenizers_that_merge_are_refused(kind, tmp_path):
    spec = dataclasses.replace(
        spec_of(HMM, tmp_path), tokenizer=TokenizerSpec(kind=kind, vocab_size=300)
    )
    with pytest.raises(UserError, match=f"tokenizer.kind={kind}: must be char"):
        load_text(spec)


def test_a_tokenizer_without_the_symbols_is_refused(tmp_path):
    from jaxpt.text.tokens.tokenizer import make_tokenizer, save

    path = tmp_path / "tokenizer.json"
    save(make_tokenizer(TokenizerSpec(specials=("unk",)), ["012345"]), path)
    tokenizer = TokenizerSpec(kind="file", path=str(path))
    spec = dataclasses.replace(spec_of(HMM, tmp_path), tokenizer=tokenizer)
    with pytest.raises(UserError, match="an id for each of the 12 symbols .* has 6"):
        load_text(spec)


@pytest.mark.parametrize("rows", ["pairs", "full_sentences", "doc_sentences"])
def test_rows_of_sentences_are_refused(rows, tmp_path):
    task, _, corpora = task_of(
        HMM,
        tmp_path,
        "bert" if rows == "pairs" else "mlm",
        data__rows=rows,
        data__documents="file",
    )
    with pytest.raises(UserError, match=f"data.rows={rows}: must be one of chunks"):
        make_feed(task, corpora["train"])


@pytest.mark.parametrize("name", ["star", "recall"])
def test_training_reads_nothing_of_the_validation_text(name, tmp_path):
    """Not the graph of a validation document with another order, or another goal."""
    path = {
        "star": "star:arm=3,names=6,valid_documents=100",  # of 360 graphs
        "recall": "recall:symbols=16,pairs=2,length=8,valid_documents=600",  # of 2352
    }[name]
    named = read_language(path)
    held, seen = [
        named.language.identify(named.read(stream, np.arange(num)))
        for stream, num in ((VALID, named.spec.valid_documents), (FRESH, 2000))
    ]
    assert not np.isin(seen, held).any()
    drawn = named.language.identify(named.draw(FRESH, np.arange(2000)))
    assert np.isin(drawn, held).any()  # as they would be read
    again = np.random.default_rng(0).permutation(2000)[:50]
    assert (named.read(FRESH, again) == named.read(FRESH, np.arange(2000))[again]).all()


def test_graphs_are_the_same_in_any_order_of_edges():
    language = read_language("star:arm=3,names=8").language
    row = np.array([[1, 2, 8, 2, 3, 8, 1, 4, 8, 4, 5, 10, 1, 3, 9, 1, 2, 3]])
    other = np.array([[4, 5, 8, 1, 2, 8, 2, 3, 8, 1, 4, 10, 1, 5, 9, 1, 4, 5]])
    different = np.array([[1, 2, 8, 2, 5, 8, 1, 4, 8, 4, 3, 10, 1, 5, 9, 1, 2, 5]])
    ids = [language.identify(each)[0] for each in (row, other, different)]
    assert ids[0] == ids[1] != ids[2]


def test_words_of_fresh_rows_are_counted_in_the_finite_text(tmp_path):
    """For checkpoints after a number of words: documents here are one word."""
    task, tokenizer, corpora = task_of(
        HMM, tmp_path, data__row_length=24, tokenizer__specials=("pad",)
    )
    feed = make_feed(task, corpora["train"])
    words = count_words_of_row(corpora["train"], feed, tokenizer, 24)
    assert 0 < words <= 1
    assert describe_rows(task, feed) == []


def test_rows_are_reported(tmp_path):
    for path, objective, line in (
        (HMM, "mlm", "data.rows=packed: sampled rows, 60.00% of their places filled"),
        (
            SMALL["star"],
            "span_corruption",
            "data.rows=packed: sampled rows, 95.00% of their places filled; losses are "
            "read in the whole text, not in answers only",
        ),
    ):
        task, _, corpora = task_of(
            path,
            tmp_path,
            objective,
            data__rows="packed",
            data__row_length=40,
            model__max_len=48,
            tokenizer__specials=("pad", "mask", "eos") if "star" in path else ("pad",),
        )
        assert describe_rows(task, make_feed(task, corpora["train"])) == [line]
