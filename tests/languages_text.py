"""Small artificial languages, and their texts and tasks for tests."""

from tiny import make_config, prepare

from jaxpt.text.text_spec import TextSpec
from jaxpt.text.tokens.tokenizer import TokenizerSpec

SIZE = "documents=64,valid_documents=32"
HMM = f"hmm:states=4,symbols=12,transitions=0.5,length=24,{SIZE}"
# A small one of each kind, whose documents have 24 symbols or fewer.
SMALL = {
    "hmm": HMM,
    "pcfg": f"pcfg:nonterminals=3,symbols=8,length=12,{SIZE}",
    "copy": f"copy:letters=6,size=5,{SIZE}",
    "star": f"star:arm=3,names=8,{SIZE}",
    "facts": f"facts:pairs=20,symbols=8,{SIZE}",
    "recall": f"recall:symbols=16,pairs=3,length=24,{SIZE}",
}


def spec_of(path, tmp_path, **changes):
    """A text of a language, with [PAD] before the symbols and [EOS] after them."""
    specials = changes.pop("specials", ("pad", "mask"))
    tokenizer = TokenizerSpec(specials=specials, num_sentinels=2)
    cache = str(tmp_path / "cache")
    return TextSpec(path=path, tokenizer=tokenizer, cache_dir=cache, **changes)


def task_of(path, tmp_path, objective="clm", **changes):
    cache = str(tmp_path / "cache")
    config = make_config(path, objective, data__cache_dir=cache, **changes)
    return prepare(config)
