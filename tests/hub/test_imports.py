"""Flags and settings of an import, and moving an imported run."""

import dataclasses
import json
import shutil

import pytest
from hub.conftest import flags, same, stored
from hub.test_families import Fixture
from hub.test_runs import make_tokenizer
from safetensors.numpy import load_file
from tiny import slow, write_config

from jaxpt.cli.main import main
from jaxpt.config.config_files import load_stored
from jaxpt.config.plan import make_plan
from jaxpt.hub.chat_templates import export_templates
from jaxpt.hub.export import export_run
from jaxpt.hub.imports import TOKENIZER, import_run
from jaxpt.runs.predictions import generate_texts
from jaxpt.runs.program import Program
from jaxpt.runs.workdir import load_run
from jaxpt.text.tokens import tokenizer as tokenizers
from jaxpt.text.tokens.exported import export_tokenizer


@pytest.mark.slow_except("gpt2-clm-clm_mlm")
@pytest.mark.parametrize(
    "name, first, other", [("gpt2", "clm", "clm_mlm"), ("bert", "mlm", "spanbert")]
)
def test_a_folder_of_others_is_what_the_flag_says(
    name, first, other, make_checkpoint, tmp_path
):
    folder, run, config = make_checkpoint(name)
    import_run(folder, tmp_path / "plain", config)
    assert stored(tmp_path / "plain")["objective"] == first
    lines = import_run(folder, run, *flags(config, objective=other))
    assert stored(run)["objective"] == other
    same(
        {key: load_run(run)[2][key] for key in ("embed", "encoder")},
        {key: load_run(tmp_path / "plain")[2][key] for key in ("embed", "encoder")},
    )
    is_drawn = any("boundary is not in" in line for line in lines)
    assert is_drawn == (other == "spanbert")


@pytest.mark.parametrize("name, is_printed", [("gpt2", True), ("bert", False)])
def test_options_of_generation_that_are_not_kept_are_listed(
    name, is_printed, make_checkpoint
):
    """Of models that generate; values that have no effect are not listed."""
    folder, run, config = make_checkpoint(name)
    options = {"min_length": 4, "repetition_penalty": 1.0, "typical_p": None}
    options |= {"early_stopping": True, "bad_words_ids": [[5]]}
    (folder / "generation_config.json").write_text(json.dumps(options))
    line = "jaxpt generate does not apply early_stopping=True, min_length=4, "
    lines = import_run(folder, run, config)
    assert any(line + "bad_words_ids=[[5]]" in each for each in lines) == is_printed
    assert not (run / "generation.json").exists()


@pytest.mark.parametrize("is_old", [False, True])
def test_options_of_generation_are_applied(is_old, make_checkpoint, tmp_path):
    folder, run, config = make_checkpoint("gpt2")
    options = {"repetition_penalty": 3.0, "no_repeat_ngram_size": 2, "num_beams": 2}
    options |= {"suppress_tokens": [9, 12], "min_new_tokens": 3, "length_penalty": 1.0}
    options |= {"top_k": 5}  # without do_sample
    path = folder / "generation_config.json"
    if is_old:
        path = folder / "config.json"
        options = json.loads(path.read_text()) | options
    path.write_text(json.dumps(options))
    assert len(import_run(folder, run, config)) == 2
    loaded = load_run(run)
    spec = {"num_beams": 2, "repetition_penalty": 3.0, "no_repeat_ngram_size": 2}
    spec |= {"min_new_tokens": 3, "suppress_tokens": (9, 12)}
    assert dict(loaded.program.task.generation) == spec
    plain = dataclasses.replace(loaded.program.task, generation=())
    other = loaded._replace(program=Program(plain, is_training=False))
    expected = generate_texts(other, ["a b"], 8, **spec)
    assert generate_texts(loaded, ["a b"], 8) == expected
    assert expected != generate_texts(other, ["a b"], 8, num_beams=2)
    # What the user sets counts, and a drawn text is none of a beam search.
    greedy = {"temperature": 0.0, "repetition_penalty": 1.0}
    kept = {"no_repeat_ngram_size": 2, "min_new_tokens": 3, "suppress_tokens": (9, 12)}
    texts = generate_texts(loaded, ["a b"], 8, **greedy)
    assert texts == generate_texts(other, ["a b"], 8, **greedy | kept)
    assert len(generate_texts(loaded, ["a b"], 8, num_samples=2)) == 2
    export_run(run, tmp_path / "again")
    again = json.loads((tmp_path / "again/generation_config.json").read_text())
    assert {name: again[name] for name in spec} == spec | {"suppress_tokens": [9, 12]}
    assert "do_sample" not in again


CHAT = "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}[EOS]{% endfor %}"
TALK = [{"role": "user", "content": " a b"}]


@pytest.mark.parametrize("name", ["../../outside", "/outside", "a/b", "", "a\0b"])
def test_a_forged_name_of_a_template_is_not_written(name, tmp_path, refuses):
    (tmp_path / "chat_templates.json").write_text(json.dumps({name: "{{ x }}"}))
    with refuses("chat_templates.json", repr(name), "without a folder"):
        export_templates(tmp_path, tmp_path / "export")
    assert [path.name for path in tmp_path.iterdir()] == ["chat_templates.json"]


@pytest.mark.slow_except("files")
@pytest.mark.parametrize("place", ["option", "list", "files"])
def test_chat_templates_and_added_tokens_come_through(place, make_checkpoint, tmp_path):
    """Into the run, and out of it for `AutoTokenizer`, with the same ids."""
    from transformers import AutoTokenizer

    folder, run, config = make_checkpoint("gpt2", 29)
    path = folder / "tokenizer_config.json"
    options = json.loads(path.read_text())
    options["tokenizer_class"] = "PreTrainedTokenizerFast"
    if place == "option":
        options["chat_template"] = CHAT
    elif place == "list":
        named = {"default": CHAT, "tool_use": "{{ messages }}"}
        named = [{"name": name, "template": text} for name, text in named.items()]
        options["chat_template"] = named
    else:  # the files count
        options["chat_template"] = "none"
        (folder / "chat_template.jinja").write_text(CHAT)
        (folder / "additional_chat_templates").mkdir()
        more = folder / "additional_chat_templates/tool_use.jinja"
        more.write_text("{{ messages }}")
    options["added_tokens_decoder"] = {
        "29": {"content": "a  b", "lstrip": True, "normalized": False}
    }
    path.write_text(json.dumps(options))
    theirs = AutoTokenizer.from_pretrained(folder)
    import_run(folder, run, config)
    export_run(run, tmp_path / "again")
    again = AutoTokenizer.from_pretrained(tmp_path / "again")
    assert again.chat_template == theirs.chat_template
    assert CHAT == again.get_chat_template()
    for text in ("a  b", "x a  b c", "a b[EOS]"):
        expected = theirs(text, add_special_tokens=False)["input_ids"]
        assert again(text, add_special_tokens=False)["input_ids"] == expected
        assert load_run(run).tokenizer.encode_prompt(text).tolist() == expected
    ids = [each.apply_chat_template(TALK)["input_ids"] for each in (again, theirs)]
    assert ids[0] == ids[1]


def test_a_chat_template_of_another_form_is_refused(make_checkpoint, refuses):
    folder, run, config = make_checkpoint("gpt2")
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": [1]}))
    with refuses("tokenizer_config.json: chat_template", "name and template"):
        import_run(folder, run, config)


def test_options_of_sampling_need_do_sample(make_checkpoint, tmp_path):
    folder, run, config = make_checkpoint("llama")
    options = {"do_sample": True, "temperature": 0.6, "top_p": 0.9, "top_k": 50}
    path = folder / "generation_config.json"
    path.write_text(json.dumps(options | {"do_sample": False}))
    import_run(folder, tmp_path / "greedy", config)
    assert load_run(tmp_path / "greedy").program.task.generation == ()
    path.write_text(json.dumps(options))
    import_run(folder, run, config)
    sampling = {"temperature": 0.6, "top_k": 50, "top_p": 0.9}
    assert dict(load_run(run).program.task.generation) == sampling
    export_run(run, tmp_path / "again")
    again = json.loads((tmp_path / "again/generation_config.json").read_text())
    assert again.items() >= options.items()


@pytest.mark.parametrize(
    "options, line",
    [
        ({"num_beams": "4"}, "num_beams='4': must be an integer"),
        ({"suppress_tokens": 4}, "suppress_tokens=4: must be a list of ids"),
        ({"no_repeat_ngram_size": -1}, "no_repeat_ngram_size=-1: must be at least 0"),
    ],
)
def test_bad_options_of_generation_are_one_line(
    options, line, make_checkpoint, refuses
):
    folder, run, config = make_checkpoint("gpt2")
    (folder / "generation_config.json").write_text(json.dumps(options))
    with refuses("generation_config.json", line):
        import_run(folder, run, config)
    assert not run.exists()


@pytest.mark.parametrize(
    "objective, parts",
    [
        ("mlm", ["must be one of clm, prefix_lm, clm_mlm, ul2, causal_distillation"]),
        ("span_corruption", ["whose runs have a causal model"]),
        slow("bilm", ["must be one of clm"]),
        ("nonesuch", ["must be one of clm"]),
        slow("causal_distillation", ["causal_distillation.teacher=: must name"]),
    ],
)
def test_an_objective_that_does_not_fit_is_refused(
    objective, parts, make_checkpoint, refuses
):
    folder, run, config = make_checkpoint("gpt2")
    is_named = objective != "causal_distillation"
    named = [f"objective={objective}", str(folder)] if is_named else []
    with refuses(*named, *parts):
        import_run(folder, run, *flags(config, objective=objective))
    assert not run.exists()


# Fields of the fixture "bert" that a flag must not change.
@pytest.mark.parametrize(
    "field, value, held",
    [
        ("num_layers", 3, "2"),
        ("d_model", 32, "16"),
        ("num_heads", 1, None),
        ("num_kv_heads", 1, "0"),
        ("activation", "relu", "'gelu'"),
        ("norm_epsilon", 1e-5, "1e-12"),
        ("norm_position", "pre", "'post'"),
        ("positions", "rotary", "'learned'"),
        ("max_len", 8, None),
        ("vocab_size", 40, "30"),
        ("num_decoder_layers", 1, "0"),
        ("tie_embeddings", False, "True"),
    ],
)
def test_a_flag_that_makes_another_model_is_refused(
    field, value, held, make_checkpoint, refuses
):
    folder, run, config = make_checkpoint("bert")
    more = [f"must be {held}"] if held else ["must be "]
    with refuses(f"model.{field}={value}", str(folder), *more):
        import_run(folder, run, *flags(config, **{f"model__{field}": value}))
    assert not run.exists()


def test_flags_that_make_the_same_model_are_heeded(make_checkpoint, capsys):
    folder, run, config = make_checkpoint("bert")
    settings = {
        "dropout": 0.3,
        "embed_dropout": 0.0,
        "attention_dropout": 0.25,
        "init": "normal",
        "init_std": 0.5,
        "loss_chunk": 5,
        "scan_layers": True,
        "num_layers": 2,
        "vocab_size": 30,
        "num_kv_heads": Fixture("bert").config["num_attention_heads"],
        "relative_buckets": 16,  # its positions are not relative
    }
    flags = [f"--config.model.{name}={value}" for name, value in settings.items()]
    flags += [f"--config.data.path={config.data.path}", "--config.data.seq_len=16"]
    argv = ["import", f"--from={folder}", f"--workdir={run}", *flags]
    assert main(argv) == 0
    assert "overrides settings" not in capsys.readouterr().out
    result = stored(run)["model"]
    assert {name: result[name] for name in settings} == settings
    assert result["activation"] == "gelu" and result["norm_position"] == "post"
    assert load_run(run)


def test_what_a_config_file_says_gives_way_and_is_told(
    make_checkpoint, tmp_path, capsys
):
    folder, run, config = make_checkpoint("bert")
    write_config(
        tmp_path / "config.py",
        config.data.path,
        objective="prefix_lm",
        model__dropout=0.5,
        train__init_from="somewhere",
        tokenizer__kind="byte",
        tokenizer__specials=("nlu",),
        bart__poisson_mean=2.0,
        data__row_length=16,
    )
    argv = ["import", f"--config={tmp_path / 'config.py'}", f"--from={folder}"]
    assert main([*argv, f"--workdir={run}"]) == 0
    output, last, advice = capsys.readouterr().out.splitlines()
    assert advice == (
        "for continued pretraining: optim.lr=5e-05, optim.warmup_steps=1, "
        "data.add_special_tokens=True"
    )
    for part in (
        "objective='prefix_lm' ('mlm')",
        "model.num_layers=1 (2)",
        "model.dropout=0.5 (0.1)",
        "train.init_from='somewhere' ('')",
        "tokenizer.kind='byte' ('file')",
        "tokenizer.specials=['nlu'] ([])",
    ):
        assert part in output
    assert "bart.poisson_mean" not in output and "mlm from bert" in last
    assert stored(run)["bart"]["poisson_mean"] == 2.0
    assert stored(run)["train"]["init_from"] == ""
    assert load_run(run)[1].vocab.nlu is None
    # A flag overrides the file.
    other = [*argv, f"--workdir={tmp_path / 'other'}", "--config.model.num_layers=1"]
    assert main(other) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1 and "--config.model.num_layers=1: must be 2" in err


@pytest.mark.parametrize(
    "changes, size",
    [
        slow({"num_sentinels": 3}, 30),
        ({"num_sentinels": 1}, 28),
        slow({"specials": ("nlu", "nlg", "mask")}, 30),
        slow({"specials": ("nlu",), "num_sentinels": 2}, 30),
        slow({"kind": "file", "lowercase": False, "vocab_size": 28}, 28),
    ],
)
def test_specials_are_added_where_the_model_has_room(changes, size, make_checkpoint):
    folder, run, config = make_checkpoint("bert", 28)
    changes = {f"tokenizer__{name}": value for name, value in changes.items()}
    import_run(folder, run, *flags(config, **changes))
    program, tokenizer, _, _ = load_run(run)
    vocab, held = tokenizer.vocab, make_tokenizer(28).vocab
    assert vocab.size == size and program.task.model_spec.vocab_size == 30
    for name, value in changes.items():
        _, field = name.split("__")
        assert field != "num_sentinels" or vocab.num_sentinels == value
        for role in value if field == "specials" else ():
            assert getattr(vocab, role) is not None
        result = stored(run)["tokenizer"][field]
        assert result == (list(value) if isinstance(value, tuple) else value)
    assert vocab.pieces[:28] == held.pieces and vocab.mask == held.mask


@pytest.mark.parametrize(
    "changes, parts",
    [
        ({"num_sentinels": 4}, ["num_sentinels=4", "31 ids", "the model's 30"]),
        ({"specials": ("nlu", "nlg", "s2s")}, ["specials=", "31 ids", "30"]),
        ({"specials": ("cat",)}, ["specials=('cat',)", "each one of pad"]),
        ({"kind": "wordpiece"}, ["kind=wordpiece", "must be 'file'"]),
        ({"lowercase": True}, ["lowercase=True", "must be False"]),
        ({"vocab_size": 400}, ["vocab_size=400", "must be 28"]),
        ({"path": "other.json"}, ["path=", "must be the same tokenizer"]),
        ({"path": "gone.json"}, ["gone.json", "No such file"]),
    ],
)
def test_another_tokenizer_is_refused(
    changes, parts, make_checkpoint, tmp_path, refuses
):
    folder, run, config = make_checkpoint("bert", 28)
    export_tokenizer(make_tokenizer(29), tmp_path / "other.json")
    if "path" in changes:
        changes = {"path": str(tmp_path / changes["path"])}
    changes = {f"tokenizer__{name}": value for name, value in changes.items()}
    with refuses("tokenizer", *parts):
        import_run(folder, run, *flags(config, **changes))
    assert not run.exists()


def test_the_same_tokenizer_by_its_path_and_a_start_of_its_own(
    make_checkpoint, refuses
):
    folder, run, config = make_checkpoint("bert", 28)
    with refuses("train.init_from=runs/a", "must be ''"):
        import_run(folder, run, *flags(config, train__init_from="runs/a"))
    config.train.init_from = ""
    import_run(folder, run, *flags(config, tokenizer__path=str(folder)))
    assert load_run(run)[1].vocab.size == 28


def use(run, tmp_path, capsys, *asks):
    """What each command that uses a run prints, and its export."""
    output = []
    for ask in asks:
        assert main([*ask, f"--workdir={run}"]) == 0
        out = capsys.readouterr().out
        output.append(out[out.find("step ") :])  # not that the text was prepared
    to = tmp_path / f"of-{run.name}-{len(list(tmp_path.iterdir()))}"
    assert main(["export", f"--workdir={run}", f"--to={to}"]) == 0
    capsys.readouterr()
    return output, load_file(to / "model.safetensors"), to / "tokenizer.json"


@pytest.mark.slow
@pytest.mark.parametrize(
    "name, asks",
    [
        ("bert", [["evaluate"], ["fill", "--text=a [MASK] b"]]),
        ("gpt2", [["generate", "--prompt=a b", "--num_tokens=4"]]),
    ],
)
def test_an_imported_run_can_be_moved(name, asks, make_checkpoint, tmp_path, capsys):
    folder, run, config = make_checkpoint(name)
    import_run(folder, run, config)
    assert str(tmp_path) not in json.dumps(stored(run)["tokenizer"])
    before, tensors, first = use(run, tmp_path, capsys, *asks)
    moved = tmp_path / "moved"
    shutil.move(run, moved)
    shutil.rmtree(folder)
    # The file in its old place is not read.
    run.mkdir()
    export_tokenizer(make_tokenizer(28), run / "tokenizer.json")
    after, again, tokenizer = use(moved, tmp_path, capsys, *asks)
    assert after == before
    same(again, tensors)
    assert tokenizer.read_bytes() == first.read_bytes()
    result = tokenizers.load(tokenizer)
    assert result.encode("a b").tolist() == make_tokenizer().encode("a b").tolist()


def test_a_moved_run_goes_on_and_is_a_config(make_checkpoint, tmp_path):
    folder, run, config = make_checkpoint("bert")
    config.train.steps = config.train.steps_per_call = 2
    import_run(folder, run, config)
    (tmp_path / "deep").mkdir()
    moved = tmp_path / "deep" / "moved"
    shutil.move(run, moved)
    assert main(["train", f"--workdir={moved}"]) == 0
    assert load_run(moved)[3] == 2
    shutil.move(moved, run)
    more = ["train", f"--config={run / 'config.json'}"]
    assert main([*more, f"--workdir={run}"]) == 0  # finds that it is finished
    assert load_stored(str(run / "config.json")).tokenizer.path == str(run / TOKENIZER)


def test_a_config_without_its_tokenizer_is_one_line(make_checkpoint, tmp_path, capsys):
    folder, run, config = make_checkpoint("gpt2")
    import_run(folder, run, config)
    shutil.copy(run / "config.json", tmp_path / "alone.json")
    argv = ["train", f"--config={tmp_path / 'alone.json'}", f"--workdir={tmp_path}/b"]
    assert main(argv) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1 and "tokenizer.path=''" in err


def test_an_imported_run_can_teach(make_checkpoint):
    folder, run, config = make_checkpoint("gpt2")
    import_run(folder, run, config)
    config.objective = "causal_distillation"
    config.causal_distillation.teacher = str(run)
    teacher = make_plan(config).spec.teacher_model
    assert (teacher.d_model, teacher.vocab_size) == (16, 30)
