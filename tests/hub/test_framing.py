"""Special ids around texts: in a run, in an imported folder, in an export."""

import json

import jax
import numpy as np
import pytest
from hub.test_families import Fixture
from hub.test_runs import SPECIALS, TEXT, make_tokenizer, settings, write_folder
from tiny import ROWS, make_config, slow_but

from jaxpt.cli.main import main
from jaxpt.config.plan import make_plan
from jaxpt.evaluation.sampling import generate, pad_left
from jaxpt.evaluation.scores import SampleSpec
from jaxpt.evaluation.unmasking import fill_masks
from jaxpt.files.folder import write_config
from jaxpt.hub.export import export_run
from jaxpt.hub.imports import import_run
from jaxpt.runs.checkpoint import Checkpointer
from jaxpt.runs.predictions import fill_text, generate_texts
from jaxpt.runs.program import Program
from jaxpt.runs.task import make_task
from jaxpt.runs.workdir import load_run
from jaxpt.text.tokens import tokenizer as tokenizers
from jaxpt.text.tokens.training import train_subword


def write_run(folder, config, tokenizer):
    """A run of untrained parameters."""
    task = make_task(make_plan(config), tokenizer.vocab)
    state = Program(task, is_training=False).init_state(0)
    folder.mkdir()
    tokenizers.save(tokenizer, folder / "tokenizer.json")
    with Checkpointer(folder / "checkpoints") as checkpointer:
        checkpointer.save(0, state)
    write_config(folder / "config.json", task.plan.config)


def fill_ids(run, ids, k):
    """What a run fills in for the [MASK] of ids, as `fill` says it."""
    program, tokenizer, params, _ = load_run(run)
    ids = np.asarray(ids, np.int32)
    banned = program.task.nonwords
    result = fill_masks(
        program.readers["fill_logits"], params, ids, tokenizer.vocab.mask, banned, k
    )
    return [[(tokenizer.token_name(i), p) for i, p in best] for best in result]


@pytest.mark.slow_except("mlm-bpe")
@pytest.mark.parametrize("objective, kind", [("mlm", "bpe"), ("bert", "wordpiece")])
def test_fills_are_of_the_ids_of_the_exported_tokenizer(objective, kind, tmp_path):
    """With a space before the mask, and in pairs between [CLS] and [SEP]."""
    auto = pytest.importorskip("transformers").AutoTokenizer
    rows = ("data__rows", "data__documents", "data__sentences")
    changes = {key: ROWS["bert"][key] for key in rows if objective == "bert"}
    changes |= {"model__num_types": 2, "model__norm_position": "post"}
    changes |= {"model__head_transform": True, "model__head_bias": True}
    changes |= {"model__init_std": 0.5}
    tokenizer = train_subword(kind, [TEXT], 290, SPECIALS)
    config = make_config(tmp_path / "text.txt", objective, **changes)
    write_run(tmp_path / "run", config, tokenizer)
    export_run(tmp_path / "run", tmp_path / "out", "bert")
    text = "a b [MASK] c\n[MASK]"
    reference = auto.from_pretrained(tmp_path / "out")(text)
    result = fill_text(load_run(tmp_path / "run"), text, 5)
    assert result == fill_ids(tmp_path / "run", reference["input_ids"], 5)
    vocab, ids = tokenizer.vocab, reference["input_ids"]
    assert reference["token_type_ids"] == [0] * len(ids)
    a, b, c = (tokenizer.encode(word).tolist() for word in ("a", " b", " c"))
    # The bpe's line end goes with the mask, as RoBERTa's does.
    body = [*a, *b, vocab.mask, *c, vocab.mask]
    around = ([vocab.cls], [vocab.sep]) if objective == "bert" else ([], [])
    assert ids == [*around[0], *body, *around[1]]


def test_what_an_encoder_reads_ends_as_in_training(tmp_path):
    """A T5 folder that says nothing of an end: its class appends one, and so do we."""
    auto = pytest.importorskip("transformers").AutoTokenizer
    write_folder(tmp_path / "theirs", Fixture("t5"))
    import_run(tmp_path / "theirs", tmp_path / "run", settings(tmp_path))
    export_run(tmp_path / "run", tmp_path / "back", "t5")
    ids = auto.from_pretrained(tmp_path / "back")("a b <extra_id_0>")["input_ids"]
    tokenizer = make_tokenizer()
    body = tokenizer.encode_prompt("a b <extra_id_0>").tolist()
    assert ids == [*body, tokenizer.vocab.eos]


def write_template(folder, before, after):
    """Has the tokenizer of a folder put specials around a text."""
    path = folder / "tokenizer.json"
    data = json.loads(path.read_text())
    ids = {token["content"]: token["id"] for token in data["added_tokens"]}
    special = [{"SpecialToken": {"id": t, "type_id": 0}} for t in (*before, *after)]
    text = {"Sequence": {"id": "A", "type_id": 0}}
    single = [*special[: len(before)], text, *special[len(before) :]]
    data["post_processor"] = {
        "type": "TemplateProcessing",
        "single": single,
        "pair": [*single, {"Sequence": {"id": "B", "type_id": 0}}],
        "special_tokens": {
            t: {"id": t, "ids": [ids[t]], "tokens": [t]} for t in (*before, *after)
        },
    }
    path.write_text(json.dumps(data))
    # The class of the model's type would put its own specials around it.
    path = folder / "tokenizer_config.json"
    options = json.loads(path.read_text())
    options["tokenizer_class"] = "PreTrainedTokenizerFast"
    path.write_text(json.dumps(options))


@pytest.mark.slow
def test_an_imported_model_fills_what_its_tokenizer_makes_of_a_text(tmp_path):
    reference, run = tmp_path / "theirs", tmp_path / "run"
    write_folder(reference, Fixture("bert"))
    write_template(reference, ["[CLS]", "[BOS]"], ["[SEP]"])
    import_run(reference, run, settings(tmp_path))
    vocab = make_tokenizer().vocab
    body = make_tokenizer().encode_prompt("a [MASK] b")
    result = fill_text(load_run(run), "a [MASK] b", 4)
    assert result == fill_ids(run, [vocab.cls, vocab.bos, *body, vocab.sep], 4)
    assert result != fill_ids(run, body, 4)
    # It keeps that when it has been trained on, and gives it back.
    assert main(["train", "--workdir", str(run)]) == 0
    export_run(run, tmp_path / "back", "bert")
    data = json.loads((tmp_path / "back" / "tokenizer.json").read_text())
    expected = json.loads((reference / "tokenizer.json").read_text())
    assert data["post_processor"] == expected["post_processor"]


@pytest.mark.slow_cases("t5")
@pytest.mark.parametrize("name", slow_but(("t5",), ("llama", "t5")))
def test_a_text_ends_at_any_end_that_a_model_has(name, tmp_path):
    """Those of generation_config.json, which wins over config.json."""
    reference, prompts = tmp_path / "theirs", ["a b", "b", "j a"]
    fixture, tokenizer = Fixture(name), make_tokenizer()
    prompt_ids = [tokenizer.encode(prompt) for prompt in prompts]

    def put(file, **changes):
        held = fixture.config if file == "config.json" else {}
        (reference / file).write_text(json.dumps(held | changes))

    def write(run):
        import_run(reference, run, settings(tmp_path))
        return generate_texts(load_run(run), prompts, 8, temperature=0)

    write_folder(reference, fixture, {"eos_token_id": None})
    endless = write(tmp_path / "endless")
    program, _, params, _ = load_run(tmp_path / "endless")
    is_answer = program.decoder.start_id is not None
    sentinels = tokenizer.vocab.sentinels if is_answer else ()
    read = [
        np.append(ids, [6]) if is_answer else ids for ids in prompt_ids
    ]  # T5's [EOS]
    result, counts = generate(
        program.decoder, params, *pad_left(read), 8, jax.random.key(0), SampleSpec(0),
        banned=tuple({*program.task.nonwords} - {*sentinels}),
    )  # fmt: skip
    ends = sorted([int(result[0, 2]), 25])

    def cut(ends):
        texts = []
        for row, before in zip(np.asarray(result), prompt_ids, strict=True):
            places = np.flatnonzero(np.isin(row, ends))
            row = row[: places[0]] if len(places) else row
            both = row if is_answer else np.concatenate([before, row])
            texts.append(tokenizer.decode(both))
        return texts

    assert counts.tolist() == [8] * 3 and endless == cut([]) != cut(ends)
    put("config.json", eos_token_id=7)
    put("generation_config.json", eos_token_id=ends, bos_token_id=5)
    assert write(tmp_path / "told later") == cut(ends)
    export_run(tmp_path / "told later", tmp_path / "back", fixture.config["model_type"])
    for file in ("config.json", "generation_config.json"):
        back = json.loads((tmp_path / "back" / file).read_text())
        assert back["eos_token_id"] == ends and back["bos_token_id"] == 5


GREEDY, BEAMS = SampleSpec(0), SampleSpec(num_beams=3)


@pytest.mark.slow_cases("spec1")
@pytest.mark.parametrize("spec", slow_but((BEAMS,), (GREEDY, BEAMS)))
def test_a_bart_with_its_own_tokenizer(spec, tmp_path):
    """No sentinels, a separate start, and forced first and last tokens."""
    reference, run, fixture = tmp_path / "theirs", tmp_path / "run", Fixture("bart")
    ids = {"decoder_start_token_id": 6, "forced_bos_token_id": 2}
    ids |= {"eos_token_id": 6, "forced_eos_token_id": 6, "bos_token_id": 2}
    write_folder(reference, fixture, ids, num_ids=27)
    write_template(reference, ["[CLS]"], ["[EOS]"])
    import_run(reference, run, settings(tmp_path))
    program, tokenizer, params, _ = load_run(run)
    assert program.task.plan.objective_name == "bart" and program.decoder.start_id == 6
    rows = {"tokens": np.arange(7, 23)[None], "index": np.zeros(1, np.int32)}
    rows["sentence_ids"] = np.ones((1, 16), np.int32)
    task = program.task
    batch = task.objective.corrupt(jax.random.key(0), rows, task.vocab, task.spec)
    assert batch["dec_inputs"][0, :3].tolist() == [6, 7, 8]
    read = np.array([[2, *tokenizer.encode("a b"), 6]], np.int32)
    result, counts = generate(
        program.decoder, params, read, np.array([read.size]), 5, jax.random.key(0),
        spec, stop=(6,), banned=tuple(task.nonwords), first=2, last=6,
    )  # fmt: skip
    assert counts.tolist() == [5] and result[0, 0] == 2 and result[0, 4] == 6
    beams = {"temperature": spec.temperature, "num_beams": spec.num_beams}
    (text,) = generate_texts(load_run(run), ["a b"], 5, **beams)
    assert text == tokenizer.decode(result[0, 1:4])
    export_run(run, tmp_path / "back", "bart")
    for file in ("config.json", "generation_config.json"):
        back = json.loads((tmp_path / "back" / file).read_text())
        assert {name: back[name] for name in ids} == ids


@pytest.mark.slow
def test_a_bart_with_its_own_tokenizer_is_measured_and_trained(tmp_path):
    write_folder(tmp_path / "theirs", Fixture("bart"), num_ids=27)
    write_template(tmp_path / "theirs", ["[CLS]"], ["[EOS]"])
    import_run(tmp_path / "theirs", tmp_path / "run", settings(tmp_path))
    assert main(["evaluate", "--workdir", str(tmp_path / "run")]) == 0
    assert main(["train", "--workdir", str(tmp_path / "run")]) == 0
