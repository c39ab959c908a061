"""The files next to a vocabulary give transformers' ids, or are refused by name."""

import contextlib
import json
import os

import pytest
import tokenizers
from tokenizers import (
    AddedToken,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    trainers,
)

from jaxpt.errors import UserError
from jaxpt.hub.specials import read_text_form
from jaxpt.tasks.encoder import TextEncoder
from jaxpt.text.tokens import tokenizer as tok
from jaxpt.text.tokens.exported import export_tokenizer
from jaxpt.text.tokens.folder_options import INERT, NEUTRAL, ROLES
from jaxpt.text.tokens.post_processor import read_pair_template, read_template
from jaxpt.text.tokens.transformers_classes import CLASSES, KINDS, PLAIN

os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
LINES = [
    "Er möchte schön gehen und Über Änderungen reden.",
    "It is <s>old</s> news, isn't it?  Two  spaces",
    "the cat sat on the mat 1234 中文字符 naïve café",
    "THE CAT Sat <b>bold</b> <unk> running",
]
TEXTS = [
    *LINES,
    "",
    " leading and trailing  ",
    "a\tb\nc\r\nd",
    "🙂 emoji 👍🏽 e\u0301 ﬁ ½",
    "中文，没有空格。 日本語",
    "don't DON'T we'll x_y a-b 3.14",
    "token<s>inside</s>words <new> x<new>y",
]
BERT = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def letters():
    return sorted(set("".join(TEXTS)) - set(" \t\r\n"))


def make_wordpiece():
    words = "er möchte mochte schön schon the cat sat it is old news new".split()
    words += ["<s>", "</s>"]
    names = [*BERT, *letters(), *words, *(f"##{c}" for c in letters())]
    names += [w.upper() for w in ("the", "cat")] + ["##ing", "run"]
    ids = {name: i for i, name in enumerate(dict.fromkeys(names))}
    core = tokenizers.Tokenizer(models.WordPiece(ids, unk_token="[UNK]"))
    core.normalizer = normalizers.BertNormalizer(lowercase=True)
    core.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    core.decoder = decoders.WordPiece()
    core.add_special_tokens(BERT)
    return core


def make_byte_level(special=("<|endoftext|>",)):
    core = tokenizers.Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=420,
        special_tokens=list(special),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    # "<s>" and "</s>" become ordinary entries, as in Qwen's vocabulary.
    plain = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    core.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(" ", "merged_with_next"), plain]
    )
    core.train_from_iterator([*LINES, *["<s>", "</s>", "<unk>"] * 9] * 5, trainer)
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    return core


def make_spaced(names=("<unk>", "<s>", "</s>")):
    """SentencePiece's BPE with byte fallback, as Llama's and Gemma's."""
    core = tokenizers.Tokenizer(models.BPE())
    core.normalizer = normalizers.Replace(" ", "▁")
    trainer = trainers.BpeTrainer(
        vocab_size=620,
        special_tokens=[*names, *(f"<0x{b:02X}>" for b in range(256))],
        show_progress=False,
    )
    core.train_from_iterator(["▁" + line for line in LINES] * 5, trainer)
    data = json.loads(core.to_str())
    data["model"] |= {"byte_fallback": True, "fuse_unk": True, "unk_token": "<unk>"}
    data["added_tokens"] = data["added_tokens"][: len(names)]
    prepend = {"type": "Prepend", "prepend": "▁"}
    replace = data["normalizer"]
    data["normalizer"] = {"type": "Sequence", "normalizers": [prepend, replace]}
    return tokenizers.Tokenizer.from_str(json.dumps(data))


def make_unigram(front=("<pad>", "</s>", "<unk>"), names=None, codes=()):
    pieces = [(name, 0.0) for name in front]
    pieces += [("▁", -3.0), *((c, -5.0) for c in letters())]
    words = "er möchte schön the cat sat it is old news".split()
    pieces += [(f"▁{word}", -2.0) for word in words]
    pieces += [(name, 0.0) for name in (*codes, "<mask>")]
    unk_id = next(
        i for i, name in enumerate(front) if name.strip("<[]>").lower() == "unk"
    )
    core = tokenizers.Tokenizer(models.Unigram(pieces, unk_id, False))
    core.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    core.decoder = decoders.Metaspace()
    core.add_special_tokens([*(names or front), "<mask>"])
    return core


def make_ended():
    """BPE whose words have a mark at their ends, as GPT's."""
    core = tokenizers.Tokenizer(
        models.BPE(unk_token="<unk>", end_of_word_suffix="</w>")
    )
    core.normalizer = normalizers.BertNormalizer(lowercase=True)
    core.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    core.decoder = decoders.BPEDecoder(suffix="</w>")
    trainer = trainers.BpeTrainer(
        vocab_size=300,
        special_tokens=["<unk>"],
        end_of_word_suffix="</w>",
        show_progress=False,
    )
    core.train_from_iterator(LINES * 5, trainer)
    return core


ROBERTA = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")
MAKERS = {
    "BertTokenizer": ("bert", make_wordpiece),
    "MPNetTokenizer": ("mpnet", make_wordpiece),
    "GPT2Tokenizer": ("gpt2", make_byte_level),
    "OpenAIGPTTokenizer": ("openai-gpt", make_ended),
    "RobertaTokenizer": ("roberta", lambda: make_byte_level(ROBERTA)),
    "BlenderbotTokenizer": ("blenderbot", lambda: make_byte_level(ROBERTA)),
    "GPTNeoXTokenizer": ("gpt_neox", make_byte_level),
    "Qwen2Tokenizer": ("qwen3", make_byte_level),
    "LlamaTokenizer": ("llama", make_spaced),
    "CodeLlamaTokenizer": ("llama", make_spaced),
    "GemmaTokenizer": (
        "gemma2",
        lambda: make_spaced(("<pad>", "<eos>", "<bos>", "<unk>", "<mask>")),
    ),
    "T5Tokenizer": ("t5", make_unigram),
    "XLMRobertaTokenizer": ("xlm-roberta", lambda: make_unigram(ROBERTA[:4])),
    "CamembertTokenizer": ("camembert", lambda: make_unigram(ROBERTA[:4])),
    "DebertaV2Tokenizer": (
        "deberta-v2",
        lambda: make_unigram(("[PAD]", "[CLS]", "[SEP]", "[UNK]")),
    ),
    "RemBertTokenizer": (
        "rembert",
        lambda: make_unigram(("<pad>", "[CLS]", "<unk>", "[SEP]", "[MASK]")),
    ),
    "MBartTokenizer": ("mbart", lambda: make_unigram(ROBERTA[:4], codes=("en_XX",))),
    "MBart50Tokenizer": (
        "mbart",
        lambda: make_unigram(ROBERTA[:4], codes=("en_XX", "gl_ES")),
    ),
    "PegasusTokenizer": (
        "pegasus",
        lambda: make_unigram(("<pad>", "</s>", "<mask_1>", "<mask_2>", "<unk>")),
    ),
    PLAIN: ("modernbert", make_spaced),
}
assert MAKERS.keys() == CLASSES.keys()


def write(folder, core, kind=None, files=None, **options):
    folder.mkdir(exist_ok=True)
    core.save(str(folder / "tokenizer.json"))
    files = dict(files or {})
    if kind:
        files.setdefault("config.json", {"model_type": kind})
    if options:
        files["tokenizer_config.json"] = options
    for path in folder.iterdir():
        if path.name != "tokenizer.json":
            path.unlink()
    for name, values in files.items():
        (folder / name).write_text(json.dumps(values))
    return folder


def load_theirs(folder):
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(folder)


def check_ids(ours, theirs, texts=TEXTS):
    added = theirs.added_tokens_decoder.values()
    # Names of special tokens are plain text in jaxpt.
    special = {t.content.lower() for t in added if t.special}
    for text in texts:
        expected = theirs(text, add_special_tokens=False)["input_ids"]
        if not any(name in text.lower() for name in special):
            assert ours.encode(text).tolist() == expected, text
    roles = {role: getattr(ours.vocab, role) for role in ROLES}
    for role, id_ in roles.items():
        given = getattr(theirs, f"{role}_token_id")
        if given is not None and role != "unk":
            assert id_ == given, role
    assert ours.vocab.size == len(theirs)


VALUES = {
    "extra_ids": (0, 5),
    "wordpieces_prefix": ("##",),
    "name_or_path": ("x",),
    "model_max_length": (8,),
    "max_length": (8,),
    "truncation_side": ("left",),
    "padding_side": ("left",),
    "never_split": (["cat"],),
    "chat_template": ("{{ x }}",),
    "errors": ("strict",),
    "sp_model_kwargs": ({}, {"enable_sampling": True}),
    "init_inputs": ([], ["x"]),
    "added_tokens_decoder": (),  # below
    "additional_special_tokens": (["<new>"], []),
    "extra_special_tokens": (["<new>"], {"image_token": "<new>"}),
    "tokenizer_class": (),
    "device_map": ("cpu",),
    "tokenizer_file": ("x.json",),
    "vocab_file": ("x.txt",),
    "merges_file": ("x.txt",),
    "special_tokens_map_file": ("x.json",),
    "backend": ("tokenizers",),
    "model_input_names": (["input_ids"],),
    "_commit_hash": ("a",),
    **{f"{role}_token": ("the", "<new>", {"content": "old"}, None) for role in ROLES},
    **{f"{role}_token_id": (5, None) for role in ROLES},
    "image_token": ("<new>",),
    "vocab": ({"a": 0},),
    "merges": ([],),
    "dropout": (0.5,),
    "unk_id": (1,),
    "no_such_option": (1,),
    "auto_map": ({"AutoTokenizer": ["x.Y", None]}, {"AutoModel": "x.Y"}),
}
OPTIONS = sorted({*INERT, *NEUTRAL, *VALUES})


@pytest.mark.slow_except("BertTokenizer", "LlamaTokenizer")
@pytest.mark.parametrize("name", MAKERS)
def test_each_option_gives_the_ids_of_transformers_or_is_refused(name, tmp_path):
    kind, make = MAKERS[name]
    core, refused, num_compared = make(), set(), 0
    for option in OPTIONS:
        for value in VALUES.get(option, (True, False, None)):
            given = {"tokenizer_class": name, option: value}
            folder = write(tmp_path / "folder", core, kind, **given)
            try:
                ours = tok.load(folder)
            except UserError as error:
                assert option in str(error) or "added token" in str(error)
                assert repr(value) in str(error) or option == "tokenizer_class", error
                refused.add(option)
                continue
            try:
                theirs = load_theirs(folder)
            except Exception:
                continue  # transformers cannot load it
            try:
                check_ids(ours, theirs)
                num_compared += 1
            except AssertionError as error:
                raise AssertionError(f"{option}={value!r}: {error}") from error
    assert num_compared > 150
    assert refused >= {"no_such_option", "vocab", "merges", "dropout", "auto_map"}


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("is_named", [True, False])
def test_the_class_counts_where_tokenizer_json_disagrees(name, is_named, tmp_path):
    """A class of its own rebuilds all but the vocabulary, the plain one nothing."""
    kind, make = MAKERS[name]
    core = make()
    core.normalizer = normalizers.Sequence([normalizers.NFD(), normalizers.Lowercase()])
    core.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    options = {"tokenizer_class": name} if is_named else {}
    folder = write(tmp_path / "folder", core, kind, **options)
    if not is_named and name == "CodeLlamaTokenizer":
        pytest.skip("no model_type of jaxpt has this class")
    check_ids(tok.load(folder), load_theirs(folder))


@pytest.mark.parametrize(
    "name, options",
    [
        ("MBartTokenizer", {}),
        ("MBart50Tokenizer", {"src_lang": "gl_ES", "tgt_lang": "en_XX"}),
        ("PegasusTokenizer", {}),
    ],
)
def test_language_codes_are_around_a_text(name, options, tmp_path, refuses):
    kind, make = MAKERS[name]
    folder = write(tmp_path / "a", make(), kind, tokenizer_class=name, **options)
    ours, theirs = tok.load(folder), load_theirs(folder)
    before, after = read_template(ours.to_core()["post_processor"])
    for text in ("the cat sat", "schön  er\nnews", ""):
        expected = theirs(text).input_ids
        assert [*before, *ours.encode(text).tolist(), *after] == expected
    if name != "PegasusTokenizer":
        code = options.get("src_lang", "en_XX")
        assert theirs.convert_tokens_to_ids(code) in before + after
        write(tmp_path / "a", make(), kind, tokenizer_class=name, src_lang="xx")
        with refuses("src_lang='xx'", "language codes"):
            tok.load(folder)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "named", ["GPT2TokenizerFast", "LlamaTokenizer", "Llama 3", None]
)
def test_the_class_is_the_one_that_transformers_chooses(kind, named, tmp_path):
    """By the two names of a folder, and by whether its tokenizer.json is byte-level."""
    has_bytes = named != "LlamaTokenizer"
    core = make_byte_level() if has_bytes else make_spaced()
    name = "LlamaTokenizer" if named == "Llama 3" else named
    options = {"tokenizer_class": name} if name else {}
    folder = write(tmp_path / "folder", core, kind, eos_token="x", **options)
    try:
        theirs = load_theirs(folder)
        theirs(LINES[0])
    except Exception:
        # Of these, transformers reads no tokenizer.json.
        is_refused = name or kind in ("esm", "xlm")
        with pytest.raises(UserError) if is_refused else contextlib.nullcontext():
            tok.load(folder)  # a vocabulary of another kind
        return
    try:
        ours = tok.load(folder)
    except UserError as error:
        assert "text would be lost" in str(error)  # not the class's vocabulary
        return
    check_ids(ours, theirs)


@pytest.mark.parametrize(
    "kind, named, fields",
    [
        ("umt5", "T5Tokenizer", {}),
        ("umt5", "T5Tokenizer", {"_name_or_path": "google/umt5-small"}),
        ("t5", "T5Tokenizer", {"_name_or_path": "google/umt5-small"}),
        ("xlm-roberta", "PreTrainedTokenizerFast", {}),
        ("xlm-roberta", "PreTrainedTokenizerFast", {"model_name": "camembertv2-base"}),
        ("xlm-roberta", "T5Tokenizer", {"model_name": "camembertv2-base"}),
        ("longt5", "T5Tokenizer", {"model_name": "camembertv2-base"}),
    ],
)
def test_names_in_config_json_choose_the_class_as_in_transformers(
    kind, named, fields, tmp_path
):
    """A class would give other ids than the file, whose normalizer is another."""
    core = make_unigram(ROBERTA[:4]) if kind == "xlm-roberta" else make_unigram()
    core.normalizer = normalizers.Lowercase()
    files = {"config.json": {"model_type": kind} | fields}
    folder = write(tmp_path / "a", core, kind, files, tokenizer_class=named)
    check_ids(tok.load(folder), load_theirs(folder))


def write_slow(folder, name):
    """A folder with a class's files from before tokenizer.json."""
    kind, make = MAKERS[name]
    core = make()
    folder.mkdir()
    ids = core.get_vocab(with_added_tokens=False)
    model = json.loads(core.to_str())["model"]
    if model["type"] == "WordPiece":
        lines = sorted(ids, key=lambda token: ids[token])
        (folder / "vocab.txt").write_text("\n".join(lines) + "\n")
    else:
        (folder / "vocab.json").write_text(json.dumps(ids))
        merges = [" ".join(pair) for pair in model["merges"]]
        (folder / "merges.txt").write_text("\n".join(["#version: 0.2", *merges]))
    (folder / "config.json").write_text(json.dumps({"model_type": kind}))
    return len(ids)


NEW = {"bos_token": "<new>", "additional_special_tokens": ["<extra>"]}
FILES = [
    {},
    {"tokenizer_config.json": {"do_lower_case": True, "strip_accents": False}},
    {"tokenizer_config.json": {"do_lower_case": False, "add_prefix_space": True}},
    {"tokenizer_config.json": {"tokenize_chinese_chars": False}},
    {"tokenizer_config.json": {"add_bos_token": True, "add_eos_token": True}},
    {"special_tokens_map.json": NEW},
    {"special_tokens_map.json": NEW, "tokenizer_config.json": {"bos_token": "<other>"}},
    {"added_tokens.json": ["naïve", "isn't"]},
    {"added_tokens.json": ["<new>", "SAT"], "special_tokens_map.json": NEW},
    {"decoder": ["naïve", "<new>"], "special_tokens_map.json": NEW},
    {"decoder": ["naïve"], "added_tokens.json": ["café"]},
]


@pytest.mark.parametrize("has_json", [True, False])
@pytest.mark.parametrize("name", ["BertTokenizer", "GPT2Tokenizer", PLAIN])
@pytest.mark.parametrize("files", FILES, ids=range(len(FILES)))
def test_files_next_to_a_vocabulary(files, name, has_json, tmp_path):
    """Also with the ids that AutoTokenizer puts around a text."""
    files, folder = json.loads(json.dumps(files)), tmp_path / "folder"
    kind, make = MAKERS[name]
    if has_json:
        core = make()
        write(folder, core, kind)
        size = core.get_vocab_size()
    elif name == PLAIN:
        pytest.skip("its only file is tokenizer.json")
    else:
        size = write_slow(folder, name)
    listed = files.pop("decoder", [])
    if listed:
        flags = {"lstrip": False, "normalized": True, "special": False}
        files.setdefault("tokenizer_config.json", {})["added_tokens_decoder"] = {
            str(size + i): {"content": text} | flags for i, text in enumerate(listed)
        }
    if "added_tokens.json" in files:
        texts = files["added_tokens.json"]
        files["added_tokens.json"] = {t: size + i for i, t in enumerate(texts)}
    for file, values in files.items():
        (folder / file).write_text(json.dumps(values))
    theirs, ours = load_theirs(folder), tok.load(folder)
    check_ids(ours, theirs)
    form = read_text_form(folder, {}, {}, ours, ours.vocab.size)
    for text in ("the cat", "café"):
        expected = theirs(text)["input_ids"]
        assert form.wrap(ours.encode(text)).tolist() == expected
    pair = theirs("the", "cat")
    data = ours.to_json()["core"]["post_processor"]
    template = read_pair_template(data)
    if template is not None:
        row = TextEncoder(ours, template, 64).texts("the", "cat")
        assert row.tokens.tolist() == pair["input_ids"]


def test_an_added_token_keeps_its_id(tmp_path, refuses):
    files = {"added_tokens.json": {"naïve": 999}}
    folder = write(tmp_path / "folder", make_wordpiece(), "bert", files)
    with refuses("'naïve'", "999", "gives it"):
        tok.load(folder)


def test_a_class_of_a_model_type_is_refused_with_the_reason(tmp_path, refuses):
    folder = write(tmp_path / "a", make_ended(), "xlm")
    with refuses("XLMTokenizer", "Moses' rules", "PreTrainedTokenizerFast"):
        tok.load(folder)
    write(folder, make_ended(), "xlm", tokenizer_class="PreTrainedTokenizerFast")
    assert tok.load(folder).encode("the cat").size


@pytest.mark.parametrize(
    "name",
    [
        *("BertJapaneseTokenizer", "BertweetTokenizer", "AlbertTokenizerFast"),
        *("XLNetTokenizer", "MyTokenizer", "DebertaTokenizer", "CLIPTokenizer"),
    ],
)
def test_other_classes_are_refused(name, tmp_path, refuses):
    folder = write(tmp_path / "a", make_wordpiece(), "bert", tokenizer_class=name)
    with refuses("tokenizer_config.json", f"tokenizer_class={name!r}", "BertTokenizer"):
        tok.load(folder)
    files = {"config.json": {"model_type": "bert", "tokenizer_class": name}}
    folder = write(tmp_path / "b", make_wordpiece(), files=files)
    with refuses(f"tokenizer_class={name!r}"):
        tok.load(folder)


def test_a_class_of_another_kind_of_vocabulary_is_refused(tmp_path, refuses):
    folder = write(
        tmp_path / "a", make_wordpiece(), "bert", tokenizer_class="GPT2Tokenizer"
    )
    with refuses("tokenizer_class is GPT2Tokenizer", "BPE", "WordPiece"):
        tok.load(folder)


@pytest.mark.parametrize(
    "option, value",
    [
        ("strip_accents", "no"),
        ("do_lower_case", 1),
        ("mask_token", 3),
        ("additional_special_tokens", "x"),
        ("added_tokens_decoder", [1]),
        ("added_tokens_decoder", {"a": {"content": "b"}}),
        ("tokenizer_class", 3),
    ],
)
def test_options_of_a_wrong_type_are_refused(option, value, tmp_path, refuses):
    folder = write(tmp_path / "a", make_wordpiece(), "bert", **{option: value})
    with refuses("tokenizer_config.json", option):
        tok.load(folder)


def test_accents_that_are_kept(tmp_path):
    """A German BERT that lowercases and keeps accents."""
    write_slow(tmp_path / "de", "BertTokenizer")
    options = {"do_lower_case": True, "strip_accents": False}
    path = tmp_path / "de" / "tokenizer_config.json"
    path.write_text(json.dumps(options))
    for place in ("de", "de/vocab.txt"):
        ours = tok.load(tmp_path / place)
        names = [ours.token_name(i) for i in ours.encode("Er möchte SCHÖN")]
        assert names == ["er", "möchte", "schön"]


def test_ordinary_entries_with_names_of_specials_keep_their_ids(tmp_path):
    """Qwen 3: `<s>`, `</s>` and `<unk>` are ordinary; documents end with eos."""
    core = make_byte_level(("<|endoftext|>", "<|im_end|>"))
    names = {"<s>", "</s>", "<unk>"}
    assert names <= core.get_vocab().keys()
    config = {"model_type": "qwen3", "bos_token_id": 0, "eos_token_id": 1}
    end = "<|endoftext|>"
    options = {"bos_token": None, "eos_token": end, "pad_token": end}
    options |= {"unk_token": None, "tokenizer_class": "Qwen2Tokenizer"}
    folder = write(tmp_path / "a", core, files={"config.json": config}, **options)
    ours, theirs = tok.load(folder), load_theirs(folder)
    vocab = ours.vocab
    assert (vocab.bos, vocab.eos, vocab.pad) == (0, 0, 0)
    assert vocab.unk is vocab.cls is vocab.sep is vocab.mask is None
    text = "It is <s>old</s> news <unk>"
    expected = theirs(text)["input_ids"]
    assert ours.encode(text).tolist() == ours.encode_prompt(text).tolist() == expected
    export_tokenizer(ours, tmp_path / "tokenizer.json")
    again = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    assert again.encode(text).ids == expected


def test_roles_of_a_gemma_vocabulary_in_a_modernbert(tmp_path):
    """Roles by file, then by the config's ids; `<s>` and `</s>` are HTML tags."""
    core = make_spaced(("<pad>", "<eos>", "<bos>", "<unk>", "<mask>"))
    core.add_tokens([AddedToken("<s>"), AddedToken("</s>"), AddedToken("[MASK]")])
    names = {role: f"<{role}>" for role in ("pad", "eos", "bos", "unk", "mask")}
    options = {f"{role}_token": name for role, name in names.items()}
    config = {"model_type": "modernbert", "cls_token_id": 2, "sep_token_id": 1}
    folder = write(tmp_path / "a", core, files={"config.json": config}, **options)
    vocab = tok.load(folder).vocab
    assert (vocab.cls, vocab.sep, vocab.bos, vocab.eos) == (2, 1, 2, 1)
    assert (vocab.pad, vocab.unk, vocab.mask) == (0, 3, 4)
    options |= {"cls_token": "<eos>", "mask_token": {"content": "[MASK]"}}
    folder = write(tmp_path / "a", core, files={"config.json": config}, **options)
    vocab = tok.load(folder).vocab
    assert (vocab.cls, vocab.sep) == (1, 1)
    assert vocab.mask == core.token_to_id("[MASK]")


def test_a_special_token_for_which_a_model_has_no_id(tmp_path, caplog):
    core = make_spaced()
    config = {"model_type": "llama", "vocab_size": core.get_vocab_size()}
    options = {"pad_token": "[PAD]"}
    folder = write(tmp_path / "a", core, files={"config.json": config}, **options)
    vocab = tok.load(folder).vocab
    assert vocab.pad is None and vocab.size == config["vocab_size"]
    assert "'[PAD]'" in caplog.text and "vocab_size" in caplog.text
    config["vocab_size"] += 1
    folder = write(tmp_path / "a", core, files={"config.json": config}, **options)
    assert tok.load(folder).vocab.pad == core.get_vocab_size()
