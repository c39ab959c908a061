"""What a run states of its export is what the export does."""

import json
from pathlib import Path

import pytest
from tiny import make_config, prepare, write_run

from jaxpt.cli.main import main
from jaxpt.config.config_files import read_config_file
from jaxpt.config.plan import make_plan
from jaxpt.errors import UserError
from jaxpt.hub.describe import describe_export
from jaxpt.hub.export import export_run
from jaxpt.runs.task import make_task
from jaxpt.text.tokens.vocab import Vocab

DOCS = Path(__file__).resolve().parents[2] / "docs"
POST = {"model__norm_position": "post", "model__num_types": 1}
HEAD = {"model__head_bias": True, "model__head_transform": True}
NO_PAD = {"tokenizer__specials": ("unk", "mask", "eos")}
PREFIX = "export to transformers: "


@pytest.mark.parametrize(
    "objective, changes",
    [
        ("clm", {"model__activation": "gelu_tanh"}),
        ("clm", {"model__activation": "relu2"}),
        ("mlm", {}),
        ("mlm", POST | HEAD),
        # RoBERTa's form, which counts positions from the id of [PAD].
        ("mlm", POST | HEAD | {"model__position_offset": 2} | NO_PAD),
        ("electra", POST | HEAD),
        ("bilm", {}),
    ],
)
def test_the_line_is_what_the_export_does(objective, changes, speech, tmp_path):
    config = make_config(speech, objective, **changes)
    (line,) = describe_export(prepare(config)[0])
    write_run(config, tmp_path / "run")
    try:
        export_run(tmp_path / "run", tmp_path / "out")
    except UserError as error:
        assert line.startswith(f"{PREFIX}none")
        reason = line.partition("none; ")[2]
        assert reason in str(error) and bool(reason) == (objective != "bilm")
        return
    configs = [
        json.loads(path.read_text()) for path in (tmp_path / "out").rglob("config.json")
    ]
    families = {each["model_type"] for each in configs if "model_type" in each}
    assert line == PREFIX + ", ".join(families)


def plan_quickstart(objective, changes=()):
    config = read_config_file(f"quickstart:{objective}")
    config.update_from_flattened_dict(dict(changes))
    plan = make_plan(config, list(dict(changes)))
    ids = {role: id_ for id_, role in enumerate(plan.text.tokenizer.specials)}
    return make_task(plan, Vocab(size=100, sentinels=tuple(range(92, 100)), **ids))


# As in docs/transformers.md.
POST_NORM = {"model.positions": "learned", "model.norm_position": "post"}
MASKED = {"model.num_types": 1, "model.head_bias": True, "model.head_transform": True}


@pytest.mark.parametrize(
    "objective, changes, family",
    [
        ("clm", {}, "gpt_neox"),
        ("mlm", POST_NORM | MASKED, "bert"),
        ("electra", POST_NORM | MASKED | {"model.activation": "gelu"}, "electra"),
        ("span_corruption", POST_NORM | {"model.position_offset": 2}, "bart"),
    ],
)
def test_the_quickstarts_models(objective, changes, family):
    assert describe_export(plan_quickstart(objective, changes)) == [PREFIX + family]
    (line,) = describe_export(plan_quickstart(objective))
    assert line.startswith(f"{PREFIX}none; ") == bool(changes)
    text = (DOCS / "transformers.md").read_text(encoding="utf-8")
    section = text.partition("## Models of the quickstart")[2].partition("\n## ")[0]
    (row,) = [x for x in section.splitlines() if x.startswith(f"| `{objective}` |")]
    assert f"`{family}`" in row
    assert all(f"`{name}={value}`" in row for name, value in changes.items())


def test_a_run_begins_with_the_line(speech, tmp_path, capsys):
    flags = {"data.path": speech, "model.d_model": 16, "train.steps": 2}
    flags |= {"model.num_layers": 1, "train.steps_per_call": 2, "eval.num_rows": 4}
    flags |= {"eval.num_choices": 0, "train.batch_size": 2, "eval.num_words": 0}
    argv = [f"--config.{name}={value}" for name, value in flags.items()]
    argv += ["--config=quickstart:clm", f"--workdir={tmp_path / 'run'}"]
    assert main(["train", *argv, "--config.train.eval_every=0"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert f"{PREFIX}gpt_neox" in lines
    assert lines.index(f"{PREFIX}gpt_neox") < next(
        i for i, line in enumerate(lines) if "evaluating the initial" in line
    )
