"""Small models of transformers with tokenizers, for comparisons with peers."""

import json
from pathlib import Path

import tokenizers
from tokenizers import models, normalizers, pre_tokenizers, processors, trainers

SPECIALS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
END = "<|endoftext|>"


def write_wordpiece(folder: Path, texts, vocab_size: int) -> int:
    """BERT's form of a tokenizer, trained on texts; returns its number of ids."""
    made = tokenizers.Tokenizer(models.WordPiece(unk_token="[UNK]"))
    made.normalizer = normalizers.BertNormalizer()
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(
        vocab_size=vocab_size, special_tokens=list(SPECIALS), show_progress=False
    )
    made.train_from_iterator(texts, trainer)
    made.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    names = ("pad", "unk", "cls", "sep", "mask")
    roles = {f"{name}_token": text for name, text in zip(names, SPECIALS, strict=True)}
    return _write(folder, made, roles)


def write_byte_bpe(folder: Path, texts, vocab_size: int) -> int:
    """GPT-2's form of a tokenizer; returns its number of ids."""
    made = tokenizers.Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = tokenizers.decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    made.train_from_iterator(texts, trainer)
    return _write(folder, made, dict.fromkeys(("bos_token", "eos_token"), END))


def _write(folder: Path, made, roles: dict) -> int:
    folder.mkdir(parents=True, exist_ok=True)
    made.save(str(folder / "tokenizer.json"))
    output = {"tokenizer_class": "PreTrainedTokenizerFast", **roles}
    (folder / "tokenizer_config.json").write_text(json.dumps(output))
    return made.get_vocab_size()


def write_model(folder: Path, kind: str, scale: float = 0.0, **sizes) -> None:
    """A random model of transformers and its tokenizer.

    Args:
      kind: "bert" or "gpt2".
      scale: of noise that is added to every parameter, biases and norms too.
    """
    import torch
    import transformers

    torch.manual_seed(0)
    heads = {"bert": "BertForMaskedLM", "gpt2": "GPT2LMHeadModel"}
    config = transformers.AutoConfig.for_model(kind, **sizes)
    model = getattr(transformers, heads[kind])(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += scale * torch.randn_like(parameter)
    model.save_pretrained(folder)
