"""Tokenizer classes of transformers, and what each makes of a tokenizer.json.

    TokenizersBackend (PreTrainedTokenizerFast)   the file as it is
    BertTokenizer, GPT2Tokenizer, ...             the file's vocabulary and merges; all
                                                  else is the class's, with the options
                                                  of tokenizer_config.json

So the ids of a folder depend on its class. Source: `AutoTokenizer` and the `__init__`
of the classes in transformers 5.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tokenizers import Regex, decoders, normalizers, pre_tokenizers

from jaxpt.errors import DataError
from jaxpt.text.tokens.core import flatten_steps

Options = Mapping[str, Any]
PLAIN = "TokenizersBackend"
_QWEN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+"
    r"[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def _keep(data: dict, options: Options) -> dict:
    return {}


@dataclass(frozen=True)
class TokenizerClass:
    """A class of transformers.

    Attributes:
      model: the type of the tokenizer's model; "" allows any.
      rebuild: (tokenizer.json, options) -> the parts that the class replaces.
      options: those of tokenizer_config.json that it reads, all true, false or null.
      names: its special tokens by role, if tokenizer_config.json names no others.
      around: the roles of the ids before and after a text; None keeps the file's.
      is_double: whether two separators are between two texts, as in RoBERTa.
      has_types: whether the second of two texts has type ids 1.
      extra: (additional_special_tokens, options) -> what it makes of that list, unless
        the files have `extra_special_tokens`.
      more: of special tokens that it always adds.
      flags: by role, those of a special token that the files name without any.
      drops_flags: whether special tokens lose `lstrip` and all other flags.
      language: the code around a text, if tokenizer_config.json names no `src_lang`.
      is_prefixed: whether that code is before the text, or after all else.
      is_joined: whether nothing is between two texts.
    """

    model: str = ""
    rebuild: Callable[[dict, Options], dict] = _keep
    options: tuple[str, ...] = ()
    names: Mapping[str, str] = field(default_factory=dict)
    around: tuple[str | None, str | None] | None = None
    is_double: bool = False
    has_types: bool = False
    extra: Callable[[list | None, Options], list | None] = lambda more, options: more
    more: tuple[str, ...] = ()
    flags: Mapping[str, Mapping[str, bool]] = field(default_factory=dict)
    drops_flags: bool = False
    language: str = ""
    is_prefixed: bool = False
    is_joined: bool = False


def _describe(component: Any) -> dict:
    """The JSON of a component of the library."""
    return json.loads(component.__getstate__())


def _flag(options: Options, name: str, default: bool) -> bool:
    value = options.get(name)
    return default if value is None else value


def _make_bert(data: dict, options: Options) -> dict:
    normalizer = normalizers.BertNormalizer(
        clean_text=True,
        handle_chinese_chars=_flag(options, "tokenize_chinese_chars", True),
        strip_accents=options.get("strip_accents"),
        lowercase=_flag(options, "do_lower_case", True),
    )
    unk = _name(options.get("unk_token")) or "[UNK]"
    model = {"unk_token": unk, "continuing_subword_prefix": "##"}
    return {
        "normalizer": _describe(normalizer),
        "pre_tokenizer": _describe(pre_tokenizers.BertPreTokenizer()),
        "decoder": _describe(decoders.WordPiece(prefix="##")),
        "model": data["model"] | model | {"max_input_chars_per_word": 100},
    }


def _name(token: Any) -> str | None:
    return token.get("content") if isinstance(token, dict) else token


def _change_bpe(data: dict, **fields: Any) -> dict:
    """A model with the given fields, and defaults elsewhere."""
    empty = {"continuing_subword_prefix": "", "end_of_word_suffix": ""}
    plain = {"dropout": None, "unk_token": None, "fuse_unk": False}
    plain |= {"byte_fallback": False, "ignore_merges": False}
    return data["model"] | empty | plain | fields


def _make_byte_level(
    data: dict, options: Options, normalizer: Any = None, first: Any = None
) -> dict:
    """Byte-level BPE: GPT-2's split, or that of `first`."""
    space = _flag(options, "add_prefix_space", False)
    split: Any = pre_tokenizers.ByteLevel(space, use_regex=first is None)
    if first is not None:
        split = pre_tokenizers.Sequence([first, split])
    return {
        "normalizer": normalizer and _describe(normalizer),
        "pre_tokenizer": _describe(split),
        "decoder": _describe(decoders.ByteLevel()),
        "model": _change_bpe(data),
    }


def _make_blenderbot(data: dict, options: Options) -> dict:
    space = _flag(options, "add_prefix_space", True)
    return _make_byte_level(data, {"add_prefix_space": space})


def _make_gpt(data: dict, options: Options) -> dict:
    """BPE of BERT's words, lower-case, with a mark at their ends."""
    unk = _name(options.get("unk_token")) or "<unk>"
    return {
        "normalizer": _describe(normalizers.BertNormalizer(lowercase=True)),
        "pre_tokenizer": _describe(pre_tokenizers.BertPreTokenizer()),
        "decoder": _describe(decoders.BPEDecoder(suffix="</w>")),
        "model": _change_bpe(data, end_of_word_suffix="</w>", unk_token=unk),
    }


def _make_neox(data: dict, options: Options) -> dict:
    made = _make_byte_level(data, options, normalizers.NFC())
    return made | {"post_processor": None}


def _make_qwen(data: dict, options: Options) -> dict:
    split = pre_tokenizers.Split(Regex(_QWEN), behavior="isolated", invert=False)
    return _make_byte_level(data, options, normalizers.NFC(), split)


def _make_spaced(data: dict, space: bool, scheme: str, **fields: Any) -> dict:
    """SentencePiece's BPE with byte fallback."""
    steps: list[Any] = [decoders.Replace("▁", " "), decoders.ByteFallback()]
    steps += [decoders.Fuse()] + [decoders.Strip(content=" ", left=1)] * space
    split = pre_tokenizers.Metaspace(prepend_scheme=scheme, split=False)
    fields |= {"continuing_subword_prefix": None, "end_of_word_suffix": None}
    return {
        "normalizer": None,
        "pre_tokenizer": _describe(split),
        "decoder": _describe(decoders.Sequence(steps)),
        "model": _change_bpe(data, fuse_unk=True, byte_fallback=True, **fields),
    }


def _make_llama(data: dict, options: Options) -> dict:
    space = _flag(options, "add_prefix_space", True)
    scheme = "always" if _flag(options, "legacy", False) else "first"
    return _make_spaced(data, space, scheme if space else "never")


_INFILLING = {"prefix": "▁<PRE>", "middle": "▁<MID>", "suffix": "▁<SUF>"}
_INFILLING |= {"eot": "▁<EOT>", "fill": "<FILL_ME>"}


def _make_code_llama(data: dict, options: Options) -> dict:
    for role, token in _INFILLING.items():
        given = options.get(f"{role}_token", token)
        if _name(given) != token:
            raise DataError(
                f"{role}_token={given!r}: must be {token!r} in a CodeLlamaTokenizer"
            )
    space = _flag(options, "add_prefix_space", True)
    unk = _name(options.get("unk_token")) or "<unk>"
    made = _make_spaced(data, True, "first" if space else "never", unk_token=unk)
    return made


def _make_gemma(data: dict, options: Options) -> dict:
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    unk = _name(options.get("unk_token")) or "<unk>"
    split = pre_tokenizers.Split(" ", behavior="merged_with_previous", invert=False)
    return _make_spaced(data, False, "never", unk_token=unk) | {
        "normalizer": _describe(normalizers.Replace(" ", "▁")),
        "pre_tokenizer": _describe(split),
        "decoder": _describe(decoders.Sequence(steps)),
    }


def _make_unigram(data: dict, scheme: str, unk_id: int) -> dict:
    charsmaps = [s for s in flatten_steps(data["normalizer"]) if s.get(_CHARSMAP)]
    space = pre_tokenizers.Metaspace(prepend_scheme=scheme, split=True)
    steps = [pre_tokenizers.WhitespaceSplit(), space]
    return {
        "normalizer": charsmaps[0] if charsmaps else None,
        "pre_tokenizer": _describe(pre_tokenizers.Sequence(steps)),
        "decoder": _describe(decoders.Metaspace(prepend_scheme=scheme, split=True)),
        "model": data["model"] | {"unk_id": unk_id, "byte_fallback": False},
    }


_CHARSMAP = "precompiled_charsmap"


def _make_t5(data: dict, options: Options) -> dict:
    return _make_unigram(data, "always", 2)


def _add_pegasus_tokens(more: list | None, options: Options) -> list:
    """Replaces a list that has <mask_1> by one without it, as the class does."""
    sent = "<mask_1>"
    first = [] if sent in (more or []) else [sent]
    return [*first, *(f"<unk_{i}>" for i in range(2, 103))]


def _add_sentinels(more: list | None, options: Options) -> list:
    """T5's sentinels, behind other special tokens, unless these contain some."""
    num = options.get("extra_ids", 100)
    if type(num) is not int or not 0 <= num <= 1000:
        raise DataError(f"extra_ids={num!r}: must be from 0 to 1000")
    more = more or []
    num_listed = sum("<extra_id_" in (_name(token) or "") for token in more)
    if num_listed and num not in (0, num_listed):
        raise DataError(
            f"extra_ids={num}: must be the number of <extra_id_*> in "
            f"additional_special_tokens, {num_listed}"
        )
    return more if num_listed else [*more, *(f"<extra_id_{i}>" for i in range(num))]


def _make_xlm_roberta(data: dict, options: Options) -> dict:
    is_spaced = options.get("add_prefix_space", True)  # null is false here
    return _make_unigram(data, "always" if is_spaced else "never", 3)


def _make_camembert(data: dict, options: Options) -> dict:
    is_spaced = options.get("add_prefix_space", True)  # null is false here
    unk = _name(options.get("unk_token")) or "<unk>"
    names = [name for name, _ in data["model"]["vocab"]]
    unk_id = names.index(unk) if unk in names else 0
    return _make_unigram(data, "always" if is_spaced else "never", unk_id)


def _make_mbart(data: dict, options: Options) -> dict:
    return _make_unigram(data, "always", 3) | {"normalizer": None}


def _make_spaces_one(data: dict, unk_id: int, *plain: Any) -> dict:
    """Unigram whose only rule of white space makes one space of several.

    Args:
      plain: steps before that if the file has no charsmap.
    """
    charsmaps = [s for s in flatten_steps(data["normalizer"]) if s.get(_CHARSMAP)]
    steps = charsmaps[:1] or [_describe(step) for step in plain]
    steps += [_describe(normalizers.Replace(Regex(r" {2,}"), " "))]
    return {
        "normalizer": {"type": "Sequence", "normalizers": steps},
        "pre_tokenizer": _describe(pre_tokenizers.Metaspace(prepend_scheme="always")),
        "decoder": _describe(decoders.Metaspace(prepend_scheme="always")),
        "model": data["model"] | {"unk_id": unk_id, "byte_fallback": False},
    }


def _make_mbart_50(data: dict, options: Options) -> dict:
    if not {name for name, _ in data["model"]["vocab"]} & set(_MBART_50):
        raise DataError("a MBart50Tokenizer without language codes in its vocabulary")
    return _make_spaces_one(data, 3)


def _make_rembert(data: dict, options: Options) -> dict:
    """Unigram whose unknown text has id 2, whatever that is."""
    charsmaps = [s for s in flatten_steps(data["normalizer"]) if s.get(_CHARSMAP)]
    quotes = ("``", "''")
    steps: list[Any] = [normalizers.Replace(each, '"') for each in quotes]
    steps += [normalizers.Replace(Regex(" {2,}"), " ")]
    if not options.get("keep_accents", True):  # null is false here
        steps += [normalizers.NFKD(), normalizers.StripAccents()]
    steps += [normalizers.Lowercase()] * _flag(options, "do_lower_case", False)
    is_spaced = options.get("add_prefix_space", True)  # null is false here
    scheme = "always" if is_spaced else "never"
    each = [*map(_describe, steps), *charsmaps]
    return {
        "normalizer": {"type": "Sequence", "normalizers": each},
        "pre_tokenizer": _describe(pre_tokenizers.Metaspace(prepend_scheme=scheme)),
        "decoder": _describe(decoders.Metaspace(prepend_scheme=scheme)),
        "model": data["model"] | {"unk_id": 2, "byte_fallback": False},
    }


def _make_pegasus(data: dict, options: Options) -> dict:
    unk = _name(options.get("unk_token")) or "<unk>"
    names = [name for name, _ in data["model"]["vocab"]]
    if unk not in names:
        raise DataError(
            f"unk_token={options.get('unk_token', unk)!r}: must be in the "
            "vocabulary of a PegasusTokenizer"
        )
    line = normalizers.Replace(Regex(r"\n"), " ")
    return _make_spaces_one(data, names.index(unk), line)


def _make_deberta(data: dict, options: Options) -> dict:
    """Unigram without SentencePiece's charsmap; runs of spaces become one."""
    steps: list[Any] = [normalizers.Lowercase()] * _flag(
        options, "do_lower_case", False
    )
    steps += [normalizers.Replace(Regex(r"\s{2,}|[\n\r\t]"), " ")]
    steps += [normalizers.NFC(), normalizers.Strip(left=False, right=True)]
    is_spaced = options.get("add_prefix_space", True)  # null is false here
    scheme = "always" if is_spaced else "first"
    is_split = _flag(options, "split_by_punct", False)
    splits: list[Any] = [pre_tokenizers.Punctuation("isolated")] * is_split
    splits += [pre_tokenizers.Metaspace(prepend_scheme=scheme)]
    # By name and score, else id 1.
    vocab, unk = data["model"]["vocab"], _name(options.get("unk_token", "[UNK]"))
    unk_id = next((i for i, piece in enumerate(vocab) if piece == [unk, 0.0]), 1)
    return {
        "normalizer": _describe(normalizers.Sequence(steps)),
        "pre_tokenizer": _describe(pre_tokenizers.Sequence(splits)),
        "decoder": _describe(decoders.Metaspace(prepend_scheme=scheme)),
        "model": data["model"] | {"byte_fallback": False, "unk_id": unk_id},
    }


_BERT = {role: f"[{role.upper()}]" for role in ("pad", "unk", "cls", "sep", "mask")}
_ROBERTA = {"cls": "<s>", "sep": "</s>", "bos": "<s>", "eos": "</s>"}
_ROBERTA |= {"pad": "<pad>", "unk": "<unk>", "mask": "<mask>"}
_GPT2 = dict.fromkeys(("bos", "eos", "unk"), "<|endoftext|>")
_LLAMA = {"bos": "<s>", "eos": "</s>", "unk": "<unk>"}
_GEMMA = {role: f"<{role}>" for role in ("pad", "eos", "bos", "unk", "mask")}
_UNUSED = ["<s>NOTUSED", "</s>NOTUSED", "<unk>NOTUSED"]
_FOLDS = ("do_lower_case", "strip_accents", "tokenize_chinese_chars")
_SPACE = ("add_prefix_space",)
_FRAMED = ("cls", "sep")
_MASK = {"mask": {"lstrip": True}}

_MBART = tuple(
    """
    ar_AR cs_CZ de_DE en_XX es_XX et_EE fi_FI fr_XX gu_IN hi_IN it_IT ja_XX kk_KZ
    ko_KR lt_LT lv_LV my_MM ne_NP nl_XX ro_RO ru_RU si_LK tr_TR vi_VN zh_CN
    """.split()
)
_MBART_50 = _MBART + tuple(
    """
    af_ZA az_AZ bn_IN fa_IR he_IL hr_HR id_ID ka_GE km_KH mk_MK ml_IN mn_MN mr_IN
    pl_PL ps_AF pt_XX sv_SE sw_KE ta_IN te_IN th_TH tl_XX uk_UA ur_PK xh_ZA gl_ES
    sl_SI
    """.split()
)

CLASSES = {
    PLAIN: TokenizerClass(),
    "BertTokenizer": TokenizerClass(
        "WordPiece", _make_bert, _FOLDS, _BERT, _FRAMED, has_types=True
    ),
    "MPNetTokenizer": TokenizerClass(
        "WordPiece",
        _make_bert,
        _FOLDS,
        _ROBERTA | {"unk": "[UNK]"},
        _FRAMED,
        is_double=True,
        flags=_MASK,
    ),
    "RobertaTokenizer": TokenizerClass(
        "BPE", _make_byte_level, _SPACE, _ROBERTA, _FRAMED, is_double=True
    ),
    "BlenderbotTokenizer": TokenizerClass(
        "BPE", _make_blenderbot, _SPACE, _ROBERTA, flags=_MASK
    ),
    "GPT2Tokenizer": TokenizerClass("BPE", _make_byte_level, _SPACE, _GPT2),
    "OpenAIGPTTokenizer": TokenizerClass("BPE", _make_gpt, (), {"unk": "<unk>"}),
    "GPTNeoXTokenizer": TokenizerClass(
        "BPE", _make_neox, _SPACE, _GPT2 | {"pad": "<|padding|>"}
    ),
    "Qwen2Tokenizer": TokenizerClass(
        "BPE",
        _make_qwen,
        _SPACE,
        dict.fromkeys(("eos", "unk", "pad"), "<|endoftext|>"),
        drops_flags=True,
    ),
    "LlamaTokenizer": TokenizerClass("BPE", _make_llama, (*_SPACE, "legacy"), _LLAMA),
    "CodeLlamaTokenizer": TokenizerClass(
        "BPE",
        _make_code_llama,
        _SPACE,
        _LLAMA,
        ("bos", None),
        more=tuple(_INFILLING.values()),
    ),
    "GemmaTokenizer": TokenizerClass("BPE", _make_gemma, (), _GEMMA),
    "T5Tokenizer": TokenizerClass(
        "Unigram",
        _make_t5,
        (),
        {"eos": "</s>", "pad": "<pad>", "unk": "<unk>"},
        (None, "eos"),
        extra=_add_sentinels,
    ),
    "XLMRobertaTokenizer": TokenizerClass(
        "Unigram", _make_xlm_roberta, _SPACE, _ROBERTA, ("bos", "eos"), is_double=True
    ),
    "MBartTokenizer": TokenizerClass(
        "Unigram",
        _make_mbart,
        (),
        _ROBERTA,
        (None, "eos"),
        extra=lambda more, options: list(dict.fromkeys([*_MBART, *(more or [])])),
        language="en_XX",
        is_joined=True,
        flags=_MASK,
    ),
    "MBart50Tokenizer": TokenizerClass(
        "Unigram",
        _make_mbart_50,
        (),
        {role: name for role, name in _ROBERTA.items() if role != "bos"},
        (None, "eos"),
        extra=lambda more, options: [*(more or []), *_MBART_50],
        language="en_XX",
        is_prefixed=True,
        is_joined=True,
        flags=_MASK,
    ),
    "PegasusTokenizer": TokenizerClass(
        "Unigram",
        _make_pegasus,
        (),
        {"pad": "<pad>", "eos": "</s>", "unk": "<unk>", "mask": "<mask_2>"},
        (None, "eos"),
        extra=_add_pegasus_tokens,
        is_joined=True,
    ),
    "DebertaV2Tokenizer": TokenizerClass(
        "Unigram",
        _make_deberta,
        ("do_lower_case", "split_by_punct", *_SPACE),
        _BERT | {"bos": "[CLS]", "eos": "[SEP]"},
        _FRAMED,
        has_types=True,
    ),
    "RemBertTokenizer": TokenizerClass(
        "Unigram",
        _make_rembert,
        ("do_lower_case", "keep_accents", *_SPACE),
        _BERT | {"bos": "[CLS]", "eos": "[SEP]", "pad": "<pad>", "unk": "<unk>"},
    ),
    "CamembertTokenizer": TokenizerClass(
        "Unigram",
        _make_camembert,
        _SPACE,
        _ROBERTA,
        ("bos", "eos"),
        is_double=True,
        extra=lambda more, options: _UNUSED if more is None else more,
        flags=_MASK,
    ),
}
# Other names of these classes, without the suffix "Fast".
_ALIASES = {
    "PreTrainedTokenizer": PLAIN,
    "PythonBackend": PLAIN,
    "BloomTokenizer": PLAIN,
    "DistilBertTokenizer": "BertTokenizer",
    "ElectraTokenizer": "BertTokenizer",
    "MobileBertTokenizer": "BertTokenizer",
    "ConvBertTokenizer": "BertTokenizer",
    "BartTokenizer": "RobertaTokenizer",
    "LongformerTokenizer": "RobertaTokenizer",
    "CodeGenTokenizer": "GPT2Tokenizer",
    "DreamTokenizer": "Qwen2Tokenizer",
    # Unknown to transformers 5, which reads the file as it is.
    "MT5Tokenizer": PLAIN,
    "GPTNeoTokenizer": PLAIN,
    "OPTTokenizer": PLAIN,
    "PhiTokenizer": PLAIN,
}
# Classes of a model_type that are not supported, with the reason.
REFUSED = {
    "XLMTokenizer": "is not supported: it splits text by Moses' rules; weights are "
    "imported with a tokenizer.json that has the model's ids, and tokenizer_class "
    "PreTrainedTokenizerFast"
}
LETTERS = "EsmTokenizer"  # which reads no tokenizer.json (`letters`)
PLAIN_NAMES = ("PreTrainedTokenizerFast", PLAIN)
# Those that are code of a repository, which is not run: what they compute is known.
REMOTE = ("DreamTokenizer",)
# The class of a model_type; `PLAIN` there overrides the class that a folder names.
KINDS: dict[str, str | None] = {
    **dict.fromkeys(("bert", "distilbert", "electra"), "BertTokenizer"),
    **dict.fromkeys(("ernie", "megatron-bert"), "BertTokenizer"),
    **dict.fromkeys(("roberta", "bart", "data2vec-text"), "RobertaTokenizer"),
    "roberta-prelayernorm": "RobertaTokenizer",
    "nomic_bert": "BertTokenizer",
    **dict.fromkeys(("gte", "jina_embeddings_v3"), "XLMRobertaTokenizer"),
    **dict.fromkeys(("gpt2", "gpt_neo", "gptj", "opt", "phi"), "GPT2Tokenizer"),
    **dict.fromkeys(("codegen", "starcoder2"), "GPT2Tokenizer"),
    **dict.fromkeys(("qwen2", "qwen3"), "Qwen2Tokenizer"),
    **dict.fromkeys(("gemma", "gemma2", "gemma3_text", "t5gemma"), "GemmaTokenizer"),
    **dict.fromkeys(("t5", "mt5"), "T5Tokenizer"),
    **dict.fromkeys(("mistral", "olmo2", "olmo3", "phi3", "stablelm"), PLAIN),
    **dict.fromkeys(("granite", "umt5", "nemotron", "ernie4_5"), PLAIN),
    **dict.fromkeys(("modernbert", "modernbert-decoder", "gpt_bigcode"), PLAIN),
    # Without a registered class.
    **dict.fromkeys(("llama", "smollm3", "eurobert", "new"), None),
    **dict.fromkeys(("longt5", "marian", "m2m_100"), None),
    **dict.fromkeys(("neobert", "ltgbert", "gpt_bert"), None),
    **dict.fromkeys(("llada", "Dream", "falcon", "bloom", "nanochat"), None),
    **dict.fromkeys(("mdlm", "bd3lm", "elc_bert"), None),
    **dict.fromkeys(("gpt_neox", "olmo", "mpt"), "GPTNeoXTokenizer"),
    "openai-gpt": "OpenAIGPTTokenizer",
    "blenderbot": "BlenderbotTokenizer",
    "mpnet": "MPNetTokenizer",
    "mbart": "MBartTokenizer",
    "pegasus": "PegasusTokenizer",
    "xlm-roberta": "XLMRobertaTokenizer",
    "deberta-v2": "DebertaV2Tokenizer",
    "camembert": "CamembertTokenizer",
    "esm": LETTERS,
    "rembert": "RemBertTokenizer",
    "xlm": "XLMTokenizer",
}
# Model types, or names of models, whose folders name a wrong class: the type's counts.
_CORRECTED = ("qwen2", "camembertv2-base")


def choose_class(
    named: Any, kind: Any, is_byte_level: bool, where: str, model_name: Any = None
) -> str | None:
    """The class of a folder's tokenizer, as `AutoTokenizer` chooses it.

    Departure: it also reads a tokenizer.json as it is if the folder's path is one of a
    few names of the Hub. The class is then the same here (google/umt5-small, whose type
    has no other), but for folders of other models with such a path.

    Args:
      named: `tokenizer_class` of tokenizer_config.json or config.json; None if neither
        has it.
      kind: `model_type` of config.json, or None.
      is_byte_level: whether the folder's tokenizer.json is byte-level.
      where: the file with the name, for errors.
      model_name: of config.json, which few models have.

    Returns:
      a key of `CLASSES` or `LETTERS`; None if nothing determines it.
    """
    name: str | None
    registered = KINDS.get(kind) if isinstance(kind, str) else None
    if named is None and kind is None:
        return None
    if kind is not None and kind not in KINDS and named not in PLAIN_NAMES:
        raise DataError(
            f"config.json: model_type={kind!r} with tokenizer_class={named!r}: is not "
            f"supported; model_type must be one of {', '.join(KINDS)}, or "
            f"tokenizer_class one of {', '.join(PLAIN_NAMES)}"
        )
    if named is None:
        named = registered or PLAIN
    if not isinstance(named, str):
        raise DataError(
            f"{where}: tokenizer_class={named!r}: must be the name of a class"
        )
    short = named if named in PLAIN_NAMES else named.removesuffix("Fast")
    is_corrected = kind in _CORRECTED or (registered and model_name in _CORRECTED)
    if registered == PLAIN or is_corrected:
        name = registered
    elif short == "LlamaTokenizer" and is_byte_level:
        name = PLAIN  # Llama 3
    else:
        name = PLAIN if short in PLAIN_NAMES else _ALIASES.get(short, short)
    if name in REFUSED:
        raise DataError(f"{where}: {name}: {REFUSED[name]}")
    if name not in (*CLASSES, LETTERS):
        raise DataError(
            f"{where}: tokenizer_class={named!r}: is not supported; must be one of "
            f"{', '.join([*CLASSES, LETTERS, *_ALIASES])}"
        )
    return name


def apply_class(name: str, data: dict, options: Options, where: str) -> dict:
    """A tokenizer.json as a class of transformers reads it, without added tokens.

    Args:
      data: the content of a tokenizer.json.
      options: those of tokenizer_config.json.
    """
    each, kind = CLASSES[name], data["model"].get("type")
    if each.model not in ("", kind):
        raise DataError(
            f"{where}: tokenizer_class is {name}, which needs a {each.model} model: "
            f"the tokenizer is a {kind}"
        )
    for option in each.options:
        if not isinstance(value := options.get(option), bool | None):
            raise DataError(f"{where}: {option}={value!r}: must be true, false or null")
    return data | each.rebuild(data, options)
