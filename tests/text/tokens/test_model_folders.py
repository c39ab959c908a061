"""Tokenizers of folders that have no tokenizer.json: SentencePiece models, and ByT5."""

import io
import json
import os
import random

import pytest
import sentencepiece
from sentencepiece import sentencepiece_model_pb2

from jaxpt.text.tokens import tokenizer as tokenizers
from jaxpt.text.tokens.symbols import is_byt5, make_byt5

os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
TEXT = "the cat  sat on naïve Mats, ¼ xyz\nÜnïcode running"
WORDS = "hello world the cat sat on mat naïve Ünïcode running tokenizer".split()
T5_IDS = {"pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1}
REMBERT_IDS = {"pad_id": 0, "unk_id": 2, "bos_id": 1, "eos_id": 3}
REMBERT_IDS |= {"bos_piece": "[CLS]", "eos_piece": "[SEP]", "pad_piece": "<pad>"}
REMBERT_IDS["control_symbols"] = "[MASK]"
CLASSES = {
    "t5": ("T5Tokenizer", "spiece.model", T5_IDS),
    "xlm-roberta": ("XLMRobertaTokenizer", "sentencepiece.bpe.model", {}),
    "camembert": ("CamembertTokenizer", "sentencepiece.bpe.model", {}),
    "rembert": ("RemBertTokenizer", "sentencepiece.model", REMBERT_IDS),
}


def train(**ids):
    """A SentencePiece model; without `ids`, it begins with <unk>, <s> and </s>."""
    draw, out = random.Random(0), io.BytesIO()
    lines = [" ".join(draw.choices(WORDS, k=8)) for _ in range(300)]
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines),
        model_writer=out,
        vocab_size=34,
        minloglevel=2,
        **ids,
    )
    return out.getvalue()


@pytest.fixture
def make_folder(tmp_path):
    """`make_folder(kind)`: the vocabulary's file and a config.json."""

    def make(kind, data=None, **settings):
        _, name, ids = CLASSES[kind]
        (tmp_path / name).write_bytes(train(**ids) if data is None else data)
        (tmp_path / "config.json").write_text(json.dumps({"model_type": kind}))
        if settings:
            (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
        return tmp_path

    return make


@pytest.mark.parametrize("kind", CLASSES)
def test_a_sentencepiece_model_has_the_ids_of_its_folder_s_model(kind, make_folder):
    import transformers

    folder = make_folder(kind)
    ours = tokenizers.load(folder)
    theirs = getattr(transformers, CLASSES[kind][0]).from_pretrained(folder)
    vocab = ours.vocab
    assert vocab.size == len(theirs)
    assert (
        ours.encode(TEXT).tolist() == theirs(TEXT, add_special_tokens=False).input_ids
    )
    assert (vocab.pad, vocab.unk) == (theirs.pad_token_id, theirs.unk_token_id)
    if kind == "t5":
        names = [f"<extra_id_{i}>" for i in range(100)]
        assert list(vocab.sentinels) == theirs.convert_tokens_to_ids(names)
        assert vocab.sentinels[0] == vocab.size - 1
        assert vocab.eos == theirs.eos_token_id
    else:
        ids = theirs.cls_token_id, theirs.sep_token_id, theirs.mask_token_id
        assert (vocab.cls, vocab.sep, vocab.mask) == ids


def test_a_file_named_as_rembert_s_is_read_alone(make_folder, refuses):
    """T5's code has a file of this name, which no folder of transformers has."""
    folder = make_folder("rembert", train(**T5_IDS))
    (folder / "config.json").unlink()
    assert tokenizers.load(folder / "sentencepiece.model").vocab.eos == 1
    (folder / "config.json").write_text(json.dumps({"model_type": "t5"}))
    with refuses("model_type='t5'", "sentencepiece.model"):
        tokenizers.load(folder)


def test_the_number_of_t5s_sentinels_is_read(make_folder, refuses):
    vocab = tokenizers.load(make_folder("t5", extra_ids=3)).vocab
    assert (vocab.size, vocab.sentinels) == (37, (36, 35, 34))
    with refuses("extra_ids='many'", "from 0 to 1000"):
        tokenizers.load(make_folder("t5", extra_ids="many"))


def test_mt5s_sentinels_are_pieces(make_folder):
    """Its vocabulary ends with "▁<extra_id_1>", "▁<extra_id_0>"."""
    proto = sentencepiece_model_pb2.ModelProto.FromString(train(**T5_IDS))
    for i in (1, 0):
        kind = proto.SentencePiece.USER_DEFINED
        proto.pieces.add(piece=f"▁<extra_id_{i}>", score=0.0, type=kind)
    folder = make_folder("t5", proto.SerializeToString(), extra_ids=0)
    (folder / "config.json").write_text(json.dumps({"model_type": "mt5"}))
    vocab = tokenizers.load(folder).vocab
    assert (vocab.size, vocab.sentinels) == (36, (35, 34))


def test_a_sentencepiece_model_of_another_kind_is_refused(make_folder, refuses):
    folder = make_folder("xlm-roberta")
    (folder / "config.json").write_text("{}")
    with refuses("model_type=None", "xlm-roberta, camembert"):
        tokenizers.load(folder)


@pytest.mark.parametrize("text", ['{"tokenizer_class": "T5Tokenizer"}', "{}", "[]"])
def test_a_folder_without_a_file_of_another_class_is_not_byt5s(text, tmp_path, refuses):
    (tmp_path / "tokenizer_config.json").write_text(text)
    with refuses(str(tmp_path)):
        tokenizers.load(tmp_path)


def test_byt5_has_the_ids_of_transformers(tmp_path):
    from transformers import ByT5Tokenizer

    (tmp_path / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "ByT5Tokenizer"})
    )
    ours, theirs = tokenizers.load(tmp_path), ByT5Tokenizer()
    assert (
        ours.encode(TEXT).tolist() == theirs(TEXT, add_special_tokens=False).input_ids
    )
    assert ours.decode(ours.encode(TEXT)) == TEXT
    vocab = ours.vocab
    assert (vocab.pad, vocab.eos, vocab.unk) == (0, 1, 2)
    # transformers adds <extra_id_*> after the ids that were trained.
    assert vocab.size == 259 == len(theirs) - 125
    assert vocab.sentinels == tuple(range(258, 247, -1))
    tokenizers.save(ours, tmp_path / "byt5.json")
    again = tokenizers.load(tmp_path / "byt5.json")
    assert is_byt5(again) and again.to_json() == make_byt5().to_json()
    assert not is_byt5(tokenizers.ByteTokenizer(("pad", "eos", "unk"), 11))
