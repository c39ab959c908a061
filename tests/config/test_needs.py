"""Any objective trains from any config: what it lacks is filled in, and said."""

import copy
import importlib.util
import itertools
import json
import signal
from pathlib import Path

import pytest
from stops import stop_after
from tiny import TEXTS, make_config, write_stored

from jaxpt.cli.main import main
from jaxpt.comparison.budget import fit_warmup
from jaxpt.config import plan as plans
from jaxpt.config.needs import Filler
from jaxpt.config.plan import make_plan, make_plans
from jaxpt.config.settings import (
    default_config,
    default_section,
    list_parts,
    to_dict,
)
from jaxpt.errors import UserError
from jaxpt.objectives import OBJECTIVES
from jaxpt.runs.task import make_task
from jaxpt.runs.workdir import flatten, load_task
from jaxpt.text.dataset import load_text
from jaxpt.text.library import open_stores
from jaxpt.text.rows.rows_spec import FORMS
from jaxpt.text.rows.rows_spec import PAIRS as PAIRED
from jaxpt.training import loop
from jaxpt.training.check import check_run

CONFIGS = Path(__file__).resolve().parents[2] / "configs"
SEQ2SEQ = {"model.num_decoder_layers": 2}
PAIRS = {"data.rows": "pairs", "data.sentences": "punctuation", "model.num_types": 2}
SENTENCES = {"data.sentence_ids": True, "data.sentences": "punctuation"}
MODES = ["nlu", "s2s", "nlg"]
# What each config lacks for each objective: nothing, for those that are not here.
LACKS = {
    "default": {
        "mlm": {"tokenizer.specials": ["mask"]},
        "span_corruption": SEQ2SEQ
        | {"tokenizer.specials": ["pad", "eos"], "tokenizer.num_sentinels": 7},
        "electra": {"tokenizer.specials": ["mask"]},
        "bert": PAIRS | {"tokenizer.specials": ["pad", "mask", "cls", "sep"]},
        "spanbert": {"tokenizer.specials": ["mask"]},
        "bart": SEQ2SEQ | SENTENCES | {"tokenizer.specials": ["pad", "mask"]},
        "prefix_lm": {"tokenizer.specials": ["pad"]},
        "clm_mlm": {"tokenizer.specials": ["mask"]},
        "ul2": SEQ2SEQ
        | {"tokenizer.specials": ["pad", "eos", *MODES], "tokenizer.num_sentinels": 22},
        "distillation": {"tokenizer.specials": ["mask"]},
        "adaptive_mlm": {"tokenizer.specials": ["mask"]},
        "fill_in_the_middle": {
            "tokenizer.specials": ["eos"],
            "tokenizer.num_sentinels": 3,
        },
        "masked_input_clm": {"tokenizer.specials": ["mask"]},
        "dual": {"tokenizer.specials": ["mask"]},
        "mixture": {"tokenizer.specials": ["mask"]},
        "masked_diffusion": {"tokenizer.specials": ["mask"]},
        "hybrid_diffusion": {"tokenizer.specials": ["mask"]},
        "block_diffusion": {"tokenizer.specials": ["mask"]},
    },
    "quickstart": {
        "span_corruption": SEQ2SEQ,
        "bert": PAIRS
        | {"tokenizer.specials": ["pad", "unk", "mask", "eos", "cls", "sep"]},
        "bart": SEQ2SEQ | SENTENCES,
        "ul2": SEQ2SEQ
        | {
            "tokenizer.specials": ["pad", "unk", "mask", "eos", *MODES],
            "tokenizer.num_sentinels": 12,
        },
    },
    "shakespeare_char": {
        "span_corruption": SEQ2SEQ
        | {"tokenizer.specials": ["mask", "pad", "eos"], "tokenizer.num_sentinels": 3},
        "bert": PAIRS | {"tokenizer.specials": ["mask", "pad", "cls", "sep"]},
        "bart": SEQ2SEQ | SENTENCES | {"tokenizer.specials": ["mask", "pad"]},
        "prefix_lm": {"tokenizer.specials": ["mask", "pad"]},
        "fill_in_the_middle": {
            "tokenizer.specials": ["mask", "eos"],
            "tokenizer.num_sentinels": 3,
        },
        "ul2": SEQ2SEQ
        | {
            "tokenizer.specials": ["mask", "pad", "eos", *MODES],
            "tokenizer.num_sentinels": 9,
        },
    },
}


def load(name):
    """The config of a file of configs/, or with every setting at its default."""
    if name == "default":
        return default_config()
    path = CONFIGS / f"{name}.py"
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.get_config()


def find_changes(config, plan):
    """Settings that a plan has otherwise than its config, but those of the optimizer.

    The plan has their values in place of -1, the default.
    """
    name = plan.objective_name
    names = [name, *list_parts(plan.config, name)]
    sections = {n: to_dict(default_section(OBJECTIVES[n].Spec)) for n in names}
    old, new = flatten(sections | to_dict(config)), flatten(plan.config)
    assert new.keys() == old.keys()
    names = [name for name in new if new[name] != old[name]]
    return {name: new[name] for name in names if not name.startswith("optim.")}


def show(value):
    return "+".join(value) if isinstance(value, list) else str(value)


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("name", LACKS)
def test_what_is_lacking_is_filled_in_and_said(name, objective):
    config = load(name)
    config.objective = objective
    plan, expected = make_plan(config), LACKS[name].get(objective, {})
    assert find_changes(config, plan) == expected
    filled = dict(part.split("=") for part in plan.filled.split(", ") if part)
    assert filled == {key: show(value) for key, value in expected.items()}
    # The network is one that the objective trains, and reads rows that there are.
    assert plan.spec.kind(plan.model.num_decoder_layers) in plan.spec.networks()
    assert set(plan.rows.keys) <= plan.spec.READS
    # A second time nothing is lacking, nor is it of a config that a run has stored.
    again, stored = make_plan(plan.config), make_plan(plan.config, is_stored=True)
    assert again.filled == stored.filled == ""
    assert again.config == stored.config == plan.config
    assert again == stored


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_no_stage_changes_what_one_before_it_has_read(objective):
    """Of any rows and stacks: so one pass in the order of the stages is enough."""
    for rows, num_layers in itertools.product((*FORMS, *PAIRED), (0, 2)):
        config = to_dict(default_config()) | {"objective": objective}
        config["data"]["rows"] = rows
        config["model"]["num_decoder_layers"] = num_layers
        filler = Filler(config, ())
        for stage in plans.COMPLETE:
            stage(filler, objective)
        for i, stage in enumerate(plans.FILL):
            stage(filler, objective)
            filled = copy.deepcopy(filler.config)
            for earlier in plans.FILL[: i + 1]:
                earlier(filler, objective)
            assert filler.config == filled, (rows, num_layers, stage.__name__)


# Rows, models and steps that others need, or none does.
SETTINGS = {
    "data__rows": "pairs",
    "data__sentence_ids": True,
    "data__sentences": "punctuation",
    "data__documents": "line",
    "model__max_len": 8,
    "model__num_decoder_layers": 1,
    "tokenizer__specials": (),
    "tokenizer__num_sentinels": 0,
    "optim__warmup_steps": 50,
    "train__steps": 30,
}


def test_a_run_too_short_for_a_flat_warm_up_has_none(speech):
    """T5's recipe for two steps."""
    flat = {"optim__warmup_steps": 20, "optim__warmup_type": "flat"}
    for steps, expected in ((2, (0, "linear")), (20, (2, "flat"))):
        plan = make_plan(make_config(speech, train__steps=steps, **flat), is_run=True)
        assert (plan.optim.warmup_steps, plan.optim.warmup_type) == expected
        # And in a comparison, whose budget determines the steps.
        plan = make_plan(make_config(speech, train__steps=steps, **flat))
        optim = fit_warmup(plan, ()).optim
        assert (optim.warmup_steps, optim.warmup_type) == expected


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_a_config_for_none_of_them_serves_all(objective, speech):
    config = make_config(speech, objective, **SETTINGS)
    plan = make_plan(config, is_run=True)
    tokenizer, _ = load_text(plan.text)
    vocab = tokenizer.vocab
    if plan.spec.needs.counts:
        ones = (1,) * vocab.size
        vocab = type(vocab)(**vars(vocab) | {"counts": ones})
    make_task(plan, vocab)  # which refuses what does not fit
    assert plan.optim.warmup_steps == 3
    assert plan.model.max_len >= max(plan.spec.lengths.values())
    assert plan.rows.rows == ("pairs" if objective == "bert" else "chunks")
    assert plan.rows.sentence_ids == (objective == "bart")
    changed = set(find_changes(config, plan))
    assert changed <= {name.replace("__", ".") for name in SETTINGS} | {
        "model.num_types"
    }


def test_positions_that_have_no_table_are_not_counted(speech):
    for positions, expected in (("learned", 24), ("relative", 8), ("rotary", 8)):
        changes = {"model__positions": positions, "model__max_len": 8}
        plan = make_plan(make_config(speech, "mlm", **changes))
        assert plan.model.max_len == expected


def test_rows_that_an_objective_can_read_stay(speech):
    for objective, form in (("mlm", "packed"), ("clm", "windows"), ("bart", "packed")):
        plan = make_plan(make_config(speech, objective, data__rows=form))
        assert plan.rows.rows == form
    for task, form in (("nsp", "pairs"), ("sop", "ordered_pairs"), ("none", "chunks")):
        plan = make_plan(make_config(speech, "bert", bert__sentence_task=task))
        assert plan.rows.rows == form


@pytest.mark.parametrize(
    "objective, settings, output",
    [
        ("bart", {"model.num_decoder_layers": 0}, "model.num_decoder_layers=0: must"),
        ("clm", {"model.num_decoder_layers": 1}, "model.num_decoder_layers=1: must"),
        ("mlm", {"tokenizer.specials": ("pad", "eos")}, "tokenizer.specials must list"),
        ("span_corruption", {"tokenizer.num_sentinels": 0}, "num_sentinels=0: "),
        ("clm", {"data.rows": "pairs"}, "data.rows=pairs: clm does not read "),
        ("bert", {"data.rows": "chunks"}, "data.rows=chunks: must be pairs with bert."),
        ("bert", {"model.num_types": 1}, "model.num_types=1: must be at least 2"),
        ("bert", {"data.sentences": ""}, "data.sentences=''"),
        ("bart", {"data.sentence_ids": False}, "data.sentence_ids=False: must be True"),
        ("bart", {"data.rows": "pairs"}, "data.rows=pairs: bart does not read "),
        ("mlm", {"data.sentence_ids": True}, "data.sentence_ids=True: mlm does not"),
        ("mlm", {"model.max_len": 9}, "model.max_len=9: must be at least 24"),
        ("mlm", {"optim.warmup_steps": 12}, "optim.warmup_steps=12: must"),
    ],
)
def test_what_was_given_is_never_changed(objective, settings, output, speech, refuses):
    """What contradicts the objective is one error that names it."""
    changes = {name.replace(".", "__"): value for name, value in settings.items()}
    config = make_config(speech, objective, **TEXTS.get("bert", {}), **changes)
    with refuses(output):
        plan = make_plan(config, settings, is_run=True)
        tokenizer, corpora = load_text(plan.text)
        task = make_task(plan, tokenizer.vocab)
        check_run(task, tokenizer, corpora)
    # A config file's setting is changed; only a flag's contradicts.
    plan = make_plan(config, is_run=True)
    assert all(name in plan.filled for name in settings)


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_what_was_given_and_serves_stays(objective, speech):
    whole = make_plan(make_config(speech, objective)).config
    settings = {
        "model.num_decoder_layers": whole["model"]["num_decoder_layers"],
        "model.num_types": 3,
        "model.max_len": 99,
        "tokenizer.specials": [*whole["tokenizer"]["specials"], "bos"],
        "tokenizer.num_sentinels": 40,
        "data.rows": whole["data"]["rows"],
        "data.sentence_ids": whole["data"]["sentence_ids"],
        "data.sentences": whole["data"]["sentences"],
        "optim.warmup_steps": 7,
    }
    config = to_dict(make_config(speech, objective))
    for name, value in settings.items():
        section, field = name.split(".")
        config[section][field] = value
    plan = make_plan(config, settings)
    assert plan.filled == "" and find_changes(config, plan) == {}


# Several at once.


def test_several_objectives_share_a_text_and_a_tokenizer(speech):
    names = ("clm", "bert", "bart", "ul2")
    changes = TEXTS["bert"] | {"tokenizer__specials": (), "model__num_layers": 2}
    config = to_dict(make_config(speech, **changes))
    before = json.dumps(config)
    plans = make_plans(config, names)
    assert json.dumps(config) == before and list(plans) == list(names)
    texts = {plan.text for plan in plans.values()}
    assert len(texts) == 1
    text = texts.pop()
    assert text.sentences == "punctuation"
    alone = {name: plan_alone(config, name) for name in names}
    needed = {s for plan in alone.values() for s in plan.text.tokenizer.specials}
    assert set(text.tokenizer.specials) == needed >= {"cls", "mask", "nlu"}
    most = max(plan.text.tokenizer.num_sentinels for plan in alone.values())
    assert text.tokenizer.num_sentinels == most > 4
    # Rows and model are each one's own.
    for name in names:
        for part in ("rows", "model", "train", "optim"):
            assert getattr(plans[name], part) == getattr(alone[name], part), name
    assert [plan.rows.rows for plan in plans.values()] == ["chunks", "pairs"] + [
        "chunks"
    ] * 2
    layers = [plan.model.num_decoder_layers for plan in plans.values()]
    assert layers == [0, 0, 2, 2]


def plan_alone(config, name):
    return make_plan(config | {"objective": name})


def test_the_order_of_several_makes_no_difference(speech):
    config = to_dict(make_config(speech, tokenizer__specials=(), **TEXTS["bert"]))
    names = ["clm", "bart", "ul2"]
    for order in (names, names[::-1]):
        plans = make_plans(config, order)
        assert len({plan.text for plan in plans.values()}) == 1
        kept = [set(plan.text.tokenizer.specials) for plan in plans.values()]
        assert kept == [{"pad", "mask", "eos", "nlu", "nlg", "s2s"}] * 3


def test_overrides_of_a_comparison_count_as_given(speech, refuses):
    own = {"bart": {"model": {"num_decoder_layers": 3}}}
    config = to_dict(make_config(speech, compare__overrides=own))
    plans = make_plans(config, ("clm", "bart"))
    layers = [plan.model.num_decoder_layers for plan in plans.values()]
    assert layers == [0, 3]
    own["bart"]["data"] = {"rows": "pairs"}
    config["compare"]["overrides"] = own
    with refuses("data.rows=pairs: bart does not read", "(for bart)"):
        make_plans(config, ("clm", "bart"))


def test_one_of_several_that_cannot_be_is_named(speech, refuses):
    config = to_dict(make_config(speech, data__rows="packed"))
    with refuses("data.rows=packed: must be pairs with bert.", "(for bert)"):
        make_plans(config, ("clm", "bert"), ("data.rows",))


# A run.


@pytest.mark.slow
def test_a_run_says_what_was_filled_in_and_resumes(
    speech, tmp_path, capsys, monkeypatch
):
    lacking = ("unk", "eos")
    config = make_config(
        speech, tokenizer__specials=lacking, optim__warmup_steps=50, model__max_len=9
    )
    config_path = write_stored(tmp_path / "given.json", config)
    command = ["train", f"--config={config_path}", f"--workdir={tmp_path / 'run'}"]
    command += ["--config.objective=prefix_lm"]
    line = (
        "filled in for prefix_lm: tokenizer.specials=unk+eos+pad, model.max_len=24, "
        "optim.warmup_steps=1"
    )
    with monkeypatch.context() as patch:
        patch.setattr(loop, "SignalWatch", stop_after(2))
        assert main(command) == 128 + signal.SIGTERM
    assert line in capsys.readouterr().out.splitlines()
    assert main(command) == 0
    out = capsys.readouterr().out
    assert line in out.splitlines() and "resuming from step" in out
    # The stored config is complete: the run resumes with it, nothing is filled in.
    stored = json.loads((tmp_path / "run" / "config.json").read_text())
    assert stored["tokenizer"]["specials"] == [*lacking, "pad"]
    task, _ = load_task(tmp_path / "run")
    assert task.plan.filled == "" and task.plan.optim.warmup_steps == 1
    assert main(["train", f"--workdir={tmp_path / 'run'}"]) == 0
    # It is another run where the user says otherwise.
    assert main([*command, "--config.optim.warmup_steps=2"]) == 2
    error = capsys.readouterr().err
    assert "holds a run with optim.warmup_steps=1, not 2" in error


def test_a_stored_config_that_is_not_whole_is_refused(speech, refuses):
    """Nothing is filled in: the stored config is the run's."""
    config = make_config(speech, "bert", **TEXTS["bert"])
    with refuses("data.rows=chunks: must be pairs"):
        make_plan(config, is_stored=True)
    plan = make_plan(config)
    assert plan.change({"train": {"seed": 3}}).filled == plan.filled != ""
    with pytest.raises(UserError, match="data.rows=chunks: must be pairs"):
        plan.change({"data": {"rows": "chunks"}})


def test_a_prepared_text_has_its_own_tokenizers_tokens(speech, tmp_path, capsys):
    """Its special tokens are not added again; others are refused."""
    tokens, store = tmp_path / "tokens.json", tmp_path / "store"
    text = f"--config.data.path={speech}"
    made = ["--config.tokenizer.kind=byte", f"--to={tokens}"]
    made += ["--config.tokenizer.specials=('pad','mask','eos')"]
    assert main(["tokenizer", "train", text, *made]) == 0
    used = ["--config.tokenizer.kind=file", f"--config.tokenizer.path={tokens}"]
    assert main(["prepare", text, *used, f"--to={store}"]) == 0
    capsys.readouterr()
    for source in (f"data.path={store}", f"data.mixture=('{store}=1',)"):
        command = ["inspect", f"--config.{source}", "--num_rows=1"]
        assert main([*command, "--config.objective=mlm"]) == 0
        assert "[MASK]" in capsys.readouterr().out
        assert main([*command, "--config.objective=ul2"]) == 2
        error = capsys.readouterr().err
        assert "tokenizer.specials=" in error and "another tokenizer" in error


def test_a_prepared_text_brings_its_tokenizer(speech, tmp_path):
    """A config file's tokenizer gives way; a flag that contradicts it is an error."""
    with_mask = make_config(speech, "mlm")
    with_mask.tokenizer.specials = ("unk", "mask")
    open_stores(make_plan(with_mask).text, folder=tmp_path / "store")
    config = make_config(speech, "mlm", data__path=str(tmp_path / "store"))
    config.tokenizer.specials, config.tokenizer.num_sentinels = ("pad", "eos"), 8
    plan = make_plan(config)
    assert f"tokenizer=that of {tmp_path / 'store'}" in plan.filled
    assert plan.text.tokenizer.num_sentinels == 0
    assert plan.config["tokenizer"]["specials"] == []  # as a stored config has it
    tokenizer, _ = load_text(plan.text)
    assert (tokenizer.vocab.mask, tokenizer.vocab.eos) == (1, None)
    explicit_names = ("tokenizer.specials", "tokenizer.num_sentinels")
    with pytest.raises(UserError, match="tokenizer.specials=.*another tokenizer"):
        load_text(make_plan(config, explicit_names).text)
