"""Random combinations of files and options next to a vocabulary, against transformers.

The texts have typed special tokens, which `encode_prompt` recognizes as transformers
does; `encode` is compared on the texts without any.
"""

import inspect
import json
import random

import pytest
import transformers
from text.tokens.test_folder_options import (
    MAKERS,
    OPTIONS,
    ROLES,
    load_theirs,
    write,
)

from jaxpt.errors import UserError
from jaxpt.hub.specials import read_text_form
from jaxpt.text.tokens import tokenizer as tok
from jaxpt.text.tokens.transformers_classes import CLASSES, PLAIN

FLAGS = ("lstrip", "rstrip", "single_word", "normalized")
SWITCHES = (
    "add_bos_token add_eos_token add_prefix_space clean_text legacy do_lower_case "
    "clean_up_tokenization_spaces from_slow keep_accents remove_space split_by_punct "
    "spaces_between_special_tokens split_special_tokens strip_accents trim_offsets "
    "tokenize_chinese_chars use_default_system_prompt use_fast"
).split()
NAMES = ["<new>", "<other>", "the", "cat", "<s>", "</s>", "<mask>", "[MASK]"]
ADDED = ["<new>", "<other>", "naïve", "Naïve", "isn't", "  "]
TEXTS = [
    *("", "  ", "\n", "the cat", " the  cat ", "a\tb\nc\r\nd\n\n", "nul\0nul"),
    *("🙂 emoji 👍🏽 e\u0301 café", "中文，没有。 日本語", "\u200b zero\u00a0width"),
    *("x<s>y", "x <s> y", "x</s> the", "<mask>the", "the <mask> cat", "<unk> old"),
    *("<new>x <new> y<new>", "sat<|endoftext|> it", "<other><extra> <NEW>"),
    *("isn't naïve Naïve NAÏVE", "‘quotes’ … ½ ﬁ Ǆ ſ İ ß", "naïvely xnaïve"),
]
MORE = "additional_special_tokens"
# Further options of a class: its special tokens in a list, and its language codes.
OWN = {
    "MBartTokenizer": {
        MORE: [["en_XX"], ["<new>", "ro_RO", "the"], None],
        "src_lang": ["en_XX", "ro_RO", "the", None],
    },
    "MBart50Tokenizer": {
        MORE: [["gl_ES"], ["<new>", "en_XX"], None],
        "src_lang": ["en_XX", "gl_ES", "ro_RO", None],
    },
    "PegasusTokenizer": {
        MORE: [["<mask_1>", "<new>"], ["<unk_2>"], None],
        "mask_token": ["<mask_1>", "<mask_2>", {"content": "<mask_2>"}],
    },
}
# Of draws: in the ordinary suite, and in all.
FEW, MANY = range(20), range(20, 400)


def draw_flags(draw):
    return {flag: draw.random() < 0.3 for flag in FLAGS}


def draw_token(draw, names=NAMES):
    """A string, or the fields of a token as tokenizer_config.json has them."""
    name, is_special = draw.choice(names), draw.random() < 0.5
    fields = {"__type": "AddedToken", "content": name, "special": is_special}
    return draw.choice([name, name, fields | draw_flags(draw)])


def draw_options(draw, core):
    """A tokenizer_config.json."""
    options = {name: draw.random() < 0.5 for name in SWITCHES if draw.random() < 0.25}
    for role in ROLES:
        if draw.random() < 0.25:
            options[f"{role}_token"] = draw.choice([None, *[draw_token(draw)] * 4])
    for name in (MORE, "extra_special_tokens"):
        if draw.random() < 0.2:
            lists = [["<new>"], ["<extra>", "the"], [], {"image_token": "<new>"}]
            options[name] = draw.choice([*lists, [draw_token(draw)]])
    if draw.random() < 0.2:
        options |= {"model_max_length": 7, "padding_side": "left", "eot_token": "<e>"}
    if draw.random() < 0.3:
        options["added_tokens_decoder"] = draw_decoder(draw, core)
    return options


def draw_decoder(draw, core):
    """Added tokens behind the vocabulary, with those of tokenizer.json or without."""
    own = core.get_added_tokens_decoder() if draw.random() < 0.5 else {}
    fields = ("content", "special", *FLAGS)
    listed = {i: {name: getattr(t, name) for name in fields} for i, t in own.items()}
    for name in draw.sample(ADDED, draw.randint(1, 3)):
        flags = draw_flags(draw) | {"special": name != "  " and draw.random() < 0.5}
        listed[core.get_vocab_size() + len(listed) - len(own)] = {
            "content": name
        } | flags
    return {str(id_): token for id_, token in listed.items()}


def draw_files(draw, kind, size):
    """The other files: config.json and, in some draws, the older ones."""
    config = {"model_type": kind} | draw.choice([{}, {}, {"vocab_size": size + 150}])
    for role in ("bos", "eos", "pad"):
        if draw.random() < 0.2:
            config[f"{role}_token_id"] = draw.choice([0, 1, 2, 5])
    files = {"config.json": config}
    if draw.random() < 0.25:
        names = {f"{r}_token": draw_token(draw) for r in ROLES if draw.random() < 0.3}
        for token in names.values():  # that file has no types
            if isinstance(token, dict):
                del token["__type"], token["special"]
        lists = [{}, {MORE: ["<extra>"]}]
        lists += [{"extra_special_tokens": {"image_token": "<new>"}}]
        files["special_tokens_map.json"] = names | draw.choice(lists)
    if draw.random() < 0.2:
        added = draw.sample(["<new>", "naïve", "SAT", "<other>"], 2)
        files["added_tokens.json"] = {name: size + i for i, name in enumerate(added)}
    if draw.random() < 0.1:
        files["generation_config.json"] = {"eos_token_id": [1, 2], "pad_token_id": 0}
    return files


def draw_folder(seed, folder):
    draw = random.Random(seed)
    name = list(MAKERS)[seed % len(MAKERS)]
    kind, make = MAKERS[name]
    core = make()
    options = draw_options(draw, core)
    for option, values in OWN.get(name, {}).items():
        if draw.random() < 0.4:
            options[option] = draw.choice(values)
    if draw.random() < 0.7:
        options["tokenizer_class"] = name
    files = draw_files(draw, kind, core.get_vocab_size())
    if name in OWN and draw.random() < 0.4:  # of this file, the class gets the list
        named = files.setdefault("special_tokens_map.json", {})
        named[MORE] = draw.choice(OWN[name][MORE][:2])
    return write(folder, core, kind, files, **options)


def list_differences(folder):
    """Where our ids are not those of transformers; None if one refuses the folder."""
    try:
        ours = tok.load(folder)
    except UserError as error:
        assert "\n" not in str(error)
        return None
    try:
        theirs = load_theirs(folder)
    except Exception:
        return None
    out = [] if ours.vocab.size == len(theirs) else [("size", len(theirs))]
    for role in ROLES:
        given = getattr(theirs, f"{role}_token_id")
        if given is not None and role != "unk" and getattr(ours.vocab, role) != given:
            out.append((role, given))
    added = theirs.added_tokens_decoder.values()
    special = {token.content.lower() for token in added if token.special}
    form = read_text_form(folder, {}, {}, ours, ours.vocab.size)
    for text in TEXTS:
        try:
            expected = theirs(text, add_special_tokens=False)["input_ids"]
        except Exception:
            continue  # no token for the unknown
        if ours.encode_prompt(text).tolist() != expected:
            out.append(("prompt", text))
        if not any(name in text.lower() for name in special):
            ids = ours.encode(text)
            if ids.tolist() != expected:
                out.append(("text", text))
            if form.wrap(ids).tolist() != theirs(text)["input_ids"]:
                out.append(("around", text))
    return out


@pytest.mark.parametrize(
    "seeds", [FEW, pytest.param(MANY, marks=pytest.mark.slow)], ids=["few", "many"]
)
def test_random_folders_give_the_ids_of_transformers(seeds, tmp_path):
    results = {
        seed: list_differences(draw_folder(seed, tmp_path / "a")) for seed in seeds
    }
    assert {seed: found for seed, found in results.items() if found} == {}
    num_compared = sum(found is not None for found in results.values())
    assert num_compared > 0.6 * len(seeds)


def test_every_argument_of_a_class_is_an_option_that_the_tests_know():
    """So that an argument of a newer transformers is noticed here."""
    base = transformers.PreTrainedTokenizerBase
    known = {*OPTIONS, *(f"{role}_token" for role in ROLES)}
    for name in CLASSES:
        if name != PLAIN:
            arguments = inspect.signature(getattr(transformers, name)).parameters
            new = [a for a in arguments if a[0] != "_" and a != "kwargs"]
            assert not {a for a in new if not a.endswith("_token")} - known, name
    source = inspect.getsource(base.__init__) + inspect.getsource(base._from_pretrained)
    popped = {
        part.split('"')[1]
        for start in ("kwargs.pop(", "kwargs.get(")
        for part in source.split(start)[1:]
        if part.startswith('"')
    }
    inner = {"files_loaded"}  # never of a file
    assert popped - known - inner == set()


@pytest.mark.parametrize(
    "name, file, value",
    [
        ("fast_tokenizer_files", "tokenizer_config.json", ["tokenizer.9.0.0.json"]),
        ("split_special_tokens", "special_tokens_map.json", True),
        ("unk_id", "tokenizer_config.json", 1),
    ],
)
def test_options_that_only_some_files_have(name, file, value, tmp_path, refuses):
    kind, make = MAKERS["DebertaV2Tokenizer"]
    folder = write(tmp_path / "a", make(), kind)
    (folder / file).write_text(json.dumps({name: value}))
    with refuses(file, name, repr(value)):
        tok.load(folder)


def test_an_empty_added_token_is_refused(tmp_path, refuses):
    """The library panics where it looks for one."""
    kind, make = MAKERS["DebertaV2Tokenizer"]
    core = make()
    token = {"content": "  ", "normalized": True}
    listed = {str(core.get_vocab_size()): token}
    folder = write(tmp_path / "a", core, kind, added_tokens_decoder=listed)
    with refuses(f"(id {core.get_vocab_size()})", "empty after normalization"):
        tok.load(folder)


def test_an_ordinary_entry_has_no_role_by_an_id_of_config_json(tmp_path):
    """The ids of a copied config are often those of another vocabulary."""
    kind, make = MAKERS["BertTokenizer"]
    core = make()
    id_ = core.token_to_id("'")
    config = {"config.json": {"model_type": kind, "bos_token_id": id_}}
    folder = write(tmp_path / "a", core, kind, config)
    ours, theirs = tok.load(folder), load_theirs(folder)
    assert ours.vocab.bos is None
    assert ours.encode("isn't").tolist() == theirs("isn't").input_ids[1:-1]


IMAGE = {"image_token": "<new>"}


@pytest.mark.parametrize(
    "name, options, parts",
    [
        ("CodeLlamaTokenizer", {"eot_token": "<e>"}, ["eot_token='<e>'", "▁<EOT>"]),
        (
            "GemmaTokenizer",
            {MORE: IMAGE, "extra_special_tokens": IMAGE},
            [MORE, "list"],
        ),
    ],
)
def test_options_that_a_class_reads_in_its_own_way_are_refused(
    name, options, parts, tmp_path, refuses
):
    kind, make = MAKERS[name]
    folder = write(tmp_path / "a", make(), kind, tokenizer_class=name, **options)
    with refuses(*parts):
        tok.load(folder)
