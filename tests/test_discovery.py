"""Help, lists of settings and configs, suggestions and completion."""

import json
import re
import shutil
import subprocess
import sys
from subprocess import PIPE

import pytest

import jaxpt
from jaxpt.cli.main import COMMANDS, GROUPS, main
from jaxpt.config.described import describe_settings
from jaxpt.config.finetuning import describe_finetuning
from jaxpt.config.settings import default_settings, to_dict
from jaxpt.config.shipped import find_config, list_configs
from jaxpt.objectives import OBJECTIVES
from jaxpt.objectives.summary import summarise
from jaxpt.tasks import TASKS
from jaxpt.zero_shot.elsewhere import FINETUNED, MULTIPLE_CHOICE
from jaxpt.zero_shot.names import NAMES


def test_every_setting_is_described_once():
    config = default_settings()
    result = describe_settings()
    assert result.keys() | {"objective"} == config.keys()
    for section, settings in result.items():
        names = [each.name for each in settings]
        assert sorted(names) == sorted(f"{section}.{key}" for key in config[section])
        for each in settings:
            assert each.text, each.name
            value = config[section][each.name.partition(".")[2]]
            default = eval(each.default)  # as Python writes it
            assert to_dict({"value": default}) == {"value": value}


@pytest.mark.parametrize("task", TASKS)
def test_every_setting_of_a_task_is_described(task):
    for settings in describe_finetuning(task).values():
        assert all(each.text for each in settings)
    (lr,) = [x for x in describe_finetuning(task)["train"] if x.name == "train.lr"]
    assert lr.default == "(2e-05,)" and lr.kind == "tuple[float, ...]"


def run(capsys, *argv):
    assert main(list(argv)) == 0
    return capsys.readouterr().out


def test_settings_are_told_by_section_by_name_and_as_json(capsys):
    whole = run(capsys, "settings")
    assert all(f"\n{name}: " in f"\n{whole}" for name in (*OBJECTIVES, "train"))
    section = run(capsys, "settings", "electra")
    assert (
        "electra.generator_size=0.25   (float; read in jaxpt.objectives.electra)"
        in section
    )
    (one,) = json.loads(run(capsys, "settings", "optim.lr", "--json"))
    assert one["name"] == "optim.lr" and one["reader"] == "jaxpt.learn.optim_spec"
    assert "adapt.rank=8" in run(capsys, "settings", "adapt", "--task", "tagging")


@pytest.mark.parametrize(
    "kind, expected",
    [
        ("objectives", "masked_diffusion"),
        ("presets", "t5-base"),
        ("configs", "wikitext2"),
        ("tasks", "tasks/mrpc"),
        ("corpora", "sotu"),
    ],
)
def test_what_there_is_is_listed(kind, expected, capsys):
    lines = run(capsys, "list", kind).splitlines()
    assert any(expected in line for line in lines)
    names = [line for line in lines if line[:1] != " "]
    assert all(len(line.split()) > 1 for line in names)


@pytest.mark.parametrize(
    "words, expected",
    [
        (("tr",), ["train"]),
        (("list", "co"), ["configs", "corpora"]),
        (("settings", "train.ste"), ["train.steps", "train.steps_per_call"]),
        (
            ("train", "--config.optim.lr"),
            [f"--config.optim.lr{name}=" for name in ("", "_width", "_tokens")],
        ),
        (
            ("train", "--config", "quick"),
            ["quickstart", "quickstart_tuned"],
        ),
        (("train", "--work"), ["--workdir"]),
        (("train", "--dr"), ["--dry_run"]),
        (("generate", "--num_s"), ["--num_samples", "--num_steps"]),
        (("train", "--objective", "elec"), ["electra"]),
        (("finetune", "--config.adapt.ra"), ["--config.adapt.rank="]),
        (("tokenizer", "--config.electra.g"), []),
        (("inspect", "--config.data.mixture_u"), ["--config.data.mixture_unit="]),
        (("tokenizer", "tr"), ["train"]),
    ],
)
def test_words_are_completed(words, expected, capsys, tmp_path):
    script = run(capsys, "completion", "bash")
    output = " ".join(f"'{word}'" for word in ("jaxpt", *words))
    call = f"COMP_WORDS=({output}); COMP_CWORD={len(words)}; _jaxpt"
    output = [f"{script}\n{call}", 'printf "%s\\n" "${COMPREPLY[@]}"']
    command = ["bash", "-c", "\n".join(output)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert (done.stdout.split(), done.stderr) == (expected, "")
    zsh = run(capsys, "completion", "zsh")
    assert zsh.startswith("autoload") and zsh.endswith(script)


def test_the_version_is_told(capsys):
    assert run(capsys, "--version") == f"jaxpt {jaxpt.__version__}\n"


@pytest.mark.parametrize(
    "argv, near",
    [
        ("trian", "unknown command (did you mean train?)"),
        ("list objective", "list objective: unknown (did you mean objectives?)"),
        ("list", "list nothing: unknown; must be one of objectives"),
        ("completion tcsh", "completion tcsh: must be bash, zsh or fish"),
        ("generate --max_new_tokens=5", "(did you mean --num_tokens?)"),
        ("generate --max_length=5", "(did you mean --num_tokens?)"),
        ("train --output_dir=a", "(did you mean --workdir?)"),
        (
            "import --from=a --to=b",
            "--to: unknown flag of jaxpt import (did you mean --w",
        ),
        ("export --from=a", "--from: unknown flag of jaxpt export (did you mean --w"),
        ("import --max_new_tokens=5", "unknown flag of jaxpt import"),
        ("finetune --from a --to b", "tasks/classification:FILE (jaxpt list tasks)"),
        ("finetune --config SST-2 --from a --to b", "(did you mean tasks/sst2?)"),
        ("finetune --config hellaswag --from a --to b", "--config tasks/choice"),
        ("evaluate --workdir a --tasks sst2", "jaxpt finetune --config tasks/sst2"),
        ("evaluate --workdir a --tasks hellaswag", "choice:FILE.json reads any table"),
        (
            "evaluate --workdir a --tasks hellaswag:b",
            "choice:FILE.json reads any table",
        ),
        ("evaluate --workdir a --tasks blimp", "must be blimp:PATH, with the path of"),
        (
            "evaluate --workdir a --tasks nope:b",
            "must be one of blimp:PATH, pairs:PATH,",
        ),
        ("settings trian", "settings trian: unknown section (did you mean train?)"),
        ("settings train.step", "(did you mean train.steps?)"),
        ("settings --tsak=a", "--tsak: unknown flag of jaxpt settings (did you mean"),
        ("train --config quickstart --wrkdir=a", "(did you mean --workdir?)"),
        ("train --config quickstart --config.optm.lr=1", "(did you mean optim.lr?)"),
        ("train --config quickstart --config.train.lr=1", "(did you mean optim.lr?)"),
        (
            "train --config quickstart --config.optim.learning_rate=1",
            "unknown setting (did you mean optim.lr?); optim has",
        ),
        ("train --learning_rate=1", "(did you mean --config.optim.lr?)"),
        ("train --batch_size=1", "(did you mean --config.train.batch_size?)"),
        ("finetune --learning_rate=1", "(did you mean --config.train.lr?)"),
        ("compare --steps=1", "(did you mean --config.train.steps?)"),
        ("train --config quickstart:mlmm --workdir a", "(did you mean mlm?)"),
        ("train --config quickstart --objective mml --workdir a", "did you mean mlm?)"),
        ("train --config quikstart --workdir a", "(did you mean quickstart?)"),
        ("train --config quickstart --steps ten", "--config.train.steps=ten: must be"),
        ("train --config quickstart --config.train.steps", "must have a value"),
        ("train --config quickstart --config.train 5", "--config.train: is a section"),
    ],
)
def test_what_is_misspelt_is_one_line(argv, near, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(argv.split()) == 2
    stderr = capsys.readouterr().err
    assert near in stderr and len(stderr.splitlines()) == 1
    assert not list(tmp_path.iterdir())


def test_a_reader_who_has_enough_is_no_error():
    code = "import sys; from jaxpt.cli.main import main; sys.exit(main())"
    command = [sys.executable, "-c", code, "settings", "train"]
    with subprocess.Popen(command, stdout=PIPE, stderr=PIPE, text=True) as process:
        process.stdout.close()
        assert process.stderr.read() == ""
    assert process.returncode == 141


def test_completion_knows_all_flags_of_all_commands(capsys):
    script = run(capsys, "completion", "bash")
    for name, each in COMMANDS.items():
        (case,) = re.findall(rf"^    {name}\) (.*) ;;$", script, re.M)
        words = case.replace('"', " ").split()
        assert {f"--{flag}" for flag in each.all_flags} <= set(words)
        for settings in each.describe_settings().values():
            assert {f"--config.{x.name}=" for x in settings} <= set(words)


def test_fish_completes_the_same_words(capsys):
    script = run(capsys, "completion", "fish")
    for name, each in COMMANDS.items():
        case = rf"^    case {name}\n      set words (.*)\n      set settings ?(.*)$"
        ((words, settings),) = re.findall(case, script, re.M)
        assert {f"--{flag}" for flag in each.all_flags} <= set(words.split())
        for section in each.describe_settings().values():
            assert {f"--config.{x.name}=" for x in section} <= set(settings.split())
    assert "quickstart" in script and "span_corruption" in script


@pytest.mark.skipif(shutil.which("fish") is None, reason="fish is not installed")
@pytest.mark.parametrize(
    "words, expected",
    [
        ("tr", ["train"]),
        ("list co", ["configs", "corpora"]),
        ("train --work", ["--workdir"]),
        ("train --config quick", ["quickstart", "quickstart_tuned"]),
        ("finetune --config.adapt.ra", ["--config.adapt.rank="]),
        ("train --data m", ["my.txt"]),
    ],
)
def test_words_are_completed_in_fish(words, expected, capsys, tmp_path):
    (tmp_path / "my.txt").touch()
    (tmp_path / "script").write_text(run(capsys, "completion", "fish"))
    code = f"source script; complete -C 'jaxpt {words}'"
    command = ["fish", "--no-config", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert (done.stdout.split(), done.stderr) == (expected, "")


def test_the_tasks_that_are_fine_tuned_are_the_shipped_configs():
    shipped = {x.removeprefix("tasks/") for x in list_configs() if "tasks/" in x}
    assert {*FINETUNED, "classification"} == shipped  # which is of a table of one's own
    assert not {*MULTIPLE_CHOICE} & {*FINETUNED, *NAMES}


def test_configs_go_by_their_names(tmp_path, monkeypatch):
    assert {"quickstart", "family", "tasks/sst2"} <= set(list_configs())
    for name in list_configs():
        assert find_config(name).endswith(f"configs/{name}.py")
    assert jaxpt.read_config("quickstart:mlm")["objective"] == "mlm"
    assert jaxpt.read_config("tasks/cola:data")["data"]["dev"].startswith("data/")
    monkeypatch.chdir(tmp_path)
    # The path in the repository works in an installed package, too.
    for name in ("quickstart", "tasks/cola"):
        assert find_config(f"configs/{name}.py:a") == find_config(f"{name}:a")
    assert jaxpt.read_config("configs/quickstart.py:mlm").objective == "mlm"
    # A file of the user's own comes first.
    (tmp_path / "quickstart").mkdir()
    assert find_config("quickstart") == "quickstart"
    assert find_config("other.py:a") == "other.py:a"


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_help_has_a_commands_flags_and_its_settings(command, capsys):
    whole = [command, *(["train"] if command == "tokenizer" else []), "--help"]
    assert main(whole) == 0
    out = capsys.readouterr().out
    for argv in ([command, "-h"], ["help", command]):  # of `tokenizer` alone, too
        assert main(argv) == 0
        assert capsys.readouterr().out == out
    assert out.startswith(f"usage: jaxpt {command}")
    assert f"\n\n{COMMANDS[command].summary}\n" in out
    example = out.partition("\nExample:\n")[2].partition("\n\nFlags:")[0]
    for line in example.strip().splitlines():
        is_shell = command == "completion" or line.startswith("        ")
        assert is_shell or line.startswith(("jaxpt ", "    jaxpt "))
    assert max(map(len, out.splitlines())) <= 88
    # A flag is a line with its default and type; the lines below describe it.
    lines = out.splitlines()
    flags = [i for i, line in enumerate(lines) if line.startswith("  --")]
    assert bool(flags) == (command not in ("list", "completion"))
    for i in flags:
        assert re.fullmatch(r"  --\w+=.*( \(\w[\w ]*\))?", lines[i])
        assert lines[i + 1].startswith(" " * 6) and lines[i + 1].strip()
    has_config = any(line.startswith("  --config=") for line in lines)
    assert has_config == (command in READERS)
    if has_config:
        parts = describe_finetuning() if command == "finetune" else describe_settings()
        names = out.partition("\nSettings, as")[2].replace(",", " ").split()
        for section, settings in parts.items():
            is_read = section not in NOT_READ.get(command, ())
            assert (f"{section}:" in names) == is_read
            own = {each.name.partition(".")[2] for each in settings}
            if is_read and command not in ("tokenizer", "prepare"):
                assert own <= set(names)


READERS = (
    *("tokenizer", "prepare", "inspect", "import", "train", "fit", "compare"),
    "finetune",
)
NO_TEXT = "model", "optim", "train", "eval", "compare", *OBJECTIVES
NOT_READ = {
    "tokenizer": NO_TEXT,
    "prepare": NO_TEXT,
    "inspect": ("optim", "eval", "compare"),
    "import": ("compare",),
    "train": ("compare",),
    "fit": ("compare",),
}


def test_the_tokenizers_help_has_no_settings_of_rows_or_electra(capsys):
    assert main(["tokenizer", "train", "--help"]) == 0
    out = capsys.readouterr().out
    assert "vocab_size" in out and "valid_path" in out
    assert not any(name in out for name in ("electra", "generator_size", "seq_len"))


def test_usage_groups_the_commands(capsys):
    out = run(capsys, "--help")
    assert max(map(len, out.splitlines())) <= 88
    places = [out.index(f"\n{group}:\n") for group in GROUPS]
    assert places == sorted(places)
    assert [*GROUPS][:2] == ["Data", "Train"] and sum(map(len, GROUPS.values())) == 26
    for name, each in COMMANDS.items():
        assert re.search(rf"^  {name} +{re.escape(each.summary[:20])}", out, re.M)


@pytest.mark.parametrize("name", OBJECTIVES)
def test_every_objective_names_its_formula_source_and_control(name):
    """In the docstring of its module, from which `jaxpt list objectives` has them."""
    summary = summarise(OBJECTIVES[name].__doc__)
    assert all(summary), summary
    assert summary.formula.startswith("loss = ") and len(summary.source) < 250
    assert all(part == part.strip() for part in summary)


def test_the_list_of_objectives_has_them(capsys):
    output = run(capsys, "list", "objectives")
    for name in OBJECTIVES:
        (start,) = re.findall(rf"(?m)^{name} +.*\n((?: +.*\n?)+)", output)
        _, formula, source, control = summarise(OBJECTIVES[name].__doc__)
        shown = " ".join(start.split())
        for text in (formula, f"source: {source}", f"control: {control}"):
            assert " ".join(text.split()) in shown
