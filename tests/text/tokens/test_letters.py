"""ESM's tokenizer has the ids of transformers, or is refused."""

import json
import random

import pytest

from jaxpt.hub.specials import read_text_form
from jaxpt.text.tokens import tokenizer as tok

PROTEINS = "<cls> <pad> <eos> <unk> L A G V S E R T I D P K Q N F Y M H W C".split()
PROTEINS += "X B U Z O . - <null_1> <mask>".split()
BASES = [*"<unk> <pad> <mask> <cls>".split(), "ACGTAC", "ACG", "CGTT", "TTT", *"ACGTN"]
SPACES = [" ", "\t", "\n", "\x0b", "\x1c", "\x1f", "\x85", "\xa0", "\u2003", "\u200b"]


def write(folder, tokens=PROTEINS, files=(), **options):
    folder.mkdir()
    (folder / "vocab.txt").write_text("\n".join(tokens), encoding="utf-8")
    values = {"config.json": {"model_type": "esm"}, "tokenizer_config.json": options}
    for name, value in (values | dict(files)).items():
        (folder / name).write_text(json.dumps(value))
    return folder


def draw_text(draw, tokens):
    """Tokens, unknown letters and spaces, without names of special tokens."""
    parts = [token for token in tokens if token not in NAMES]
    parts += [*"axzé中<>-", *SPACES, "🙂"]
    return "".join(draw.choices(parts, k=draw.randint(0, 30)))


NAMES = ("<cls>", "<pad>", "<eos>", "<unk>", "<mask>")


@pytest.mark.parametrize(
    "tokens, options",
    [
        (PROTEINS, {}),
        (PROTEINS, {"tokenizer_class": "EsmTokenizer", "do_lower_case": True}),
        (PROTEINS, {"additional_special_tokens": ["<null_1>"], "bos_token": "<cls>"}),
        (BASES, {"eos_token": None}),
        (BASES, {"eos_token": "N", "sep_token": "T"}),
    ],
)
def test_ids_are_those_of_transformers(tokens, options, tmp_path):
    from transformers import AutoTokenizer

    folder = write(tmp_path / "esm", tokens, **options)
    ours, theirs = tok.load(folder), AutoTokenizer.from_pretrained(folder)
    assert type(theirs).__name__ == "EsmTokenizer"
    assert ours.vocab.size == len(theirs)
    form = read_text_form(folder, {}, {}, ours, ours.vocab.size)
    draw = random.Random(0)
    for text in [draw_text(draw, tokens) for _ in range(300)]:
        expected = theirs(text)["input_ids"]
        special = {"<null_1>", "N", "T"} & set(theirs.all_special_tokens)
        if any(name in text for name in special):  # plain text in jaxpt
            expected = form.wrap(ours.encode_prompt(text)).tolist()
            assert theirs(text)["input_ids"] == expected, text
            continue
        assert form.wrap(ours.encode(text)).tolist() == expected, text
        prompt = f"{text}<mask> {text}<unk>"
        expected = theirs(prompt, add_special_tokens=False)["input_ids"]
        assert ours.encode_prompt(prompt).tolist() == expected, prompt
    for role in ("pad", "unk", "cls", "eos", "mask", "bos", "sep"):
        assert getattr(ours.vocab, role) == getattr(theirs, f"{role}_token_id")


def test_a_text_by_hand(tmp_path):
    """What is unknown between two tokens is one <unk>; no names in plain text."""
    ours = tok.load(write(tmp_path / "esm"))
    ids = {token: i for i, token in enumerate(PROTEINS)}
    expected = [ids[token] for token in ("M", "K", "<null_1>", "<unk>", "A", "<unk>")]
    assert ours.encode("MK<null_1> zyA\x1cz").tolist() == expected
    assert ids["<mask>"] not in ours.encode("M<mask>K")
    assert ours.decode(ours.encode("M K\nT")) == "MKT"
    assert ours.vocab.mask == 32 and ours.vocab.pad == 1


def test_it_is_written_and_read_again(tmp_path):
    ours = tok.load(write(tmp_path / "esm"))
    tok.save(ours, tmp_path / "tokenizer.json")
    again = tok.load(tmp_path / "tokenizer.json")
    assert tok.fingerprint(again) == tok.fingerprint(ours)
    text = "MKT zz<null_1>A"
    assert again.encode(text).tolist() == ours.encode(text).tolist()


@pytest.mark.parametrize(
    "tokens, files, options, parts",
    [
        (["<cls>", "L", "L"], {}, {}, ["vocab.txt", "token twice", "line 3"]),
        (["<cls>", "", "L"], {}, {}, ["vocab.txt", "line that is empty", "line 2"]),
        (PROTEINS[:-1], {}, {}, ["'<mask>'", "must be in vocab.txt"]),
        (PROTEINS, {}, {"unk_token": None}, ["unk_token=None", "EsmTokenizer"]),
        (PROTEINS, {}, {"cls_token": "<s>"}, ["'<s>'", "must be in vocab.txt"]),
        (PROTEINS, {}, {"no_such_option": 1}, ["no_such_option=1"]),
        (PROTEINS, {"added_tokens.json": {"x": 33}}, {}, ["added_tokens.json"]),
        (
            PROTEINS,
            {},
            {"added_tokens_decoder": {"33": {"content": "x"}}},
            ["'x' (id 33)", "vocab.txt"],
        ),
        (
            PROTEINS,
            {},
            {"mask_token": {"content": "<mask>", "single_word": True}},
            ["'<mask>'", "single_word=true"],
        ),
    ],
)
def test_what_would_change_ids_is_refused(
    tokens, files, options, parts, tmp_path, refuses
):
    folder = write(tmp_path / "esm", tokens, files, **options)
    with refuses(*parts):
        tok.load(folder)


def test_a_folder_without_its_file_is_refused(tmp_path, refuses):
    folder = write(tmp_path / "esm")
    tok.save(tok.load(folder), tmp_path / "own.json")
    core = json.loads((tmp_path / "own.json").read_text())
    del core["model"]["jaxpt"]
    (folder / "tokenizer.json").write_text(json.dumps(core | {"normalizer": None}))
    assert tok.load(folder).encode("MK").tolist() == [20, 15]
    (folder / "vocab.txt").unlink()
    with refuses("lacks vocab.txt", "EsmTokenizer"):
        tok.load(folder)
