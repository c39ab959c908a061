"""The files next to a vocabulary give transformers' ids, or are refused by name."""

import json
import os

import pytest
import tokenizers
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers, trainers

from jaxpt.errors import UserError
from jaxpt.text.tokens import tokenizer as tok
from jaxpt.text.tokens.folder_options import INERT, NEUTRAL, ROLES
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
    words = "er möchte mochte schön schon the cat sat it is old news <s> </s> new".split()
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
    core.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    plain = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    core.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(" ", "merged_with_next"), plain]
    )
    core.train_from_iterator([*LINES, *["<s> </s> <unk>"] * 9] * 5, trainer)
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


def make_unigram(front=("<pad>", "</s>", "<unk>"), names=None):
    pieces = [(name, 0.0) for name in front]
    pieces += [("▁", -3.0), *((c, -5.0) for c in letters())]
    words = "er möchte schön the cat sat it is old news".split()
    pieces += [(f"▁{word}", -2.0) for word in words] + [("<mask>", 0.0)]
    core = tokenizers.Tokenizer(models.Unigram(pieces, front.index("<unk>"), False))
    core.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    core.decoder = decoders.Metaspace()
    core.add_special_tokens([*(names or front), "<mask>"])
    return core


ROBERTA = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")
MAKERS = {
    "BertTokenizer": ("bert", make_wordpiece),
    "MPNetTokenizer": ("mpnet", make_wordpiece),
    "GPT2Tokenizer": ("gpt2", make_byte_level),
    "RobertaTokenizer": ("roberta", lambda: make_byte_level(ROBERTA)),
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
    "image_token": ("<new>",),
    "vocab": ({"a": 0},),
    "merges": ([],),
    "dropout": (0.5,),
    "unk_id": (1,),
    "no_such_option": (1,),
    "auto_map": ({"AutoTokenizer": ["x.Y", None]}, {"AutoModel": "x.Y"}),
}
OPTIONS = sorted({*INERT, *NEUTRAL, *VALUES})


@pytest.mark.parametrize("name", MAKERS)
def test_each_option_gives_the_ids_of_transformers_or_is_refused(name, tmp_path):
    kind, make = MAKERS[name]
    core, refused = make(), set()
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
            except AssertionError as error:
                raise AssertionError(f"{option}={value!r}: {error}") from error
    assert refused >= {"no_such_option", "vocab", "merges", "dropout", "auto_map"}
