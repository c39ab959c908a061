"""The trials of reliability: scripts and groups of tests, counted in one table.

    python tests/trials                            # all, one after another
    python tests/trials kills damage --repeat 50 --seed 7
    python tests/trials --list                     # names, and what each tries

Names without a script below are groups of tests in `GROUPS`, slow ones included. Each
trial runs in a separate process, whose last lines are printed if something did not
hold. `--repeat` and `--seed` reach the scripts of random trials; others repeat nothing.
The exit code is 1 if any trial did not hold.
"""

import argparse
import ast
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from xml.etree import ElementTree

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
HELPERS = ("__main__", "counting")
TRIED = re.compile(r"tried ([\d,]+), held ([\d,]+)")
RANDOM = ("kills", "damage")  # take --repeat and --seed

# What is tried, and the tests that try it; a test without :: is a whole file.
GROUPS: dict[str, tuple[str, tuple[str, ...]]] = {
    "resume": (
        "stopped and resumed runs of eight objectives end with the same bits",
        (
            "tests/training/test_loop.py::test_stopped_and_resumed_ends_bit_identical",
            "tests/training/test_loop.py::"
            "test_killed_with_sigkill_and_started_again_ends_bit_identical",
        ),
    ),
    "folders": (
        "empty, foreign and partial folders are no steps; links are not followed",
        (
            "tests/runs/test_checkpoint.py::test_other_directories_are_no_steps",
            "tests/runs/test_checkpoint.py::test_no_manifest_no_step",
            "tests/runs/test_checkpoint.py::test_nothing_is_written_through_a_link",
            "tests/files/test_folder.py::test_no_link_in_a_runs_folder_is_written_through",
        ),
    ),
    "disk": (
        "a full disk is one line, and what was there is whole",
        (
            "tests/runs/test_checkpoint.py::test_a_full_disk_is_one_line",
            "tests/text/stores/test_prepare.py::test_disk_full",
            "tests/hub/test_files.py::test_a_full_disk_leaves_what_was_there",
        ),
    ),
    "donation": (
        "a save during steps that reuse its buffers holds the saved step",
        ("tests/runs/test_checkpoint.py::test_donated_steps_after_an_async_save",),
    ),
    "signals": (
        "SIGTERM and Ctrl-C save the run; the exit code is 128 + the signal",
        (
            "tests/training/test_loop.py::test_sigterm_saves_and_says_so",
            "tests/training/test_loop.py::"
            "test_a_signal_during_the_last_measurement_is_not_lost",
            "tests/text/stores/test_prepare.py::"
            "test_ctrl_c_ends_the_workers_and_keeps_the_work",
        ),
    ),
    "workers": (
        "workers end with their parent; a killed worker is one line",
        (
            "tests/text/stores/test_pool.py",
            "tests/text/stores/test_prepare.py::test_workers_leave_nothing_behind",
            "tests/text/stores/test_prepare.py::test_a_killed_worker",
            "tests/text/stores/test_prepare.py::test_killed_at_random_moments",
        ),
    ),
    "batches": (
        "the same batches for any number of workers, hosts and devices",
        (
            "tests/text/test_feed.py::test_processes_read_parts_of_the_same_batches",
            "tests/text/test_feed.py::test_hosts_may_change_at_any_step",
            "tests/text/test_feed.py::test_a_process_may_read_any_places",
            "tests/text/test_feed.py::test_golden",
            "tests/text/stores/test_prepare.py::"
            "test_any_number_of_workers_gives_the_same",
        ),
    ),
    "epochs": (
        "an epoch has each row once, also when batches change",
        (
            "tests/text/test_feed.py::test_each_row_once_an_epoch",
            "tests/text/test_feed.py::test_an_epoch_has_each_token_once_in_any_phases",
            "tests/text/test_feed.py::test_a_mixture_reads_each_row_once_an_epoch",
        ),
    ),
    "devices": (
        "1 and 8 devices, jit and pmap, microbatches: the same losses",
        (
            "tests/runs/test_program.py::test_eight_devices_give_one_devices_numbers",
            "tests/runs/test_program.py::"
            "test_steps_per_call_does_not_change_the_numbers",
        ),
    ),
    "processes": (
        "two processes: saved by one number, resumed by another; one is killed",
        ("tests/training/test_topologies.py",),
    ),
    "releases": (
        "stored runs, stores, exports and reports give the same numbers",
        ("tests/releases/test_releases.py",),
    ),
    "golden": (
        "the losses of 50 steps of every objective are the stored ones",
        ("tests/objectives/test_golden.py",),
    ),
    "mismatch": (
        "another shape, dtype, config, text or tokenizer is refused by name",
        (
            "tests/runs/test_checkpoint.py::test_another_tree_is_refused",
            "tests/training/test_loop.py::test_a_run_keeps_the_dtype_it_began_with",
            "tests/training/test_loop.py::"
            "test_a_folder_of_another_config_is_refused_untouched",
            "tests/training/test_loop.py::"
            "test_a_folder_of_other_text_or_tokenizer_is_refused",
        ),
    ),
    "pickle": (
        "training, resuming and export with pickle disabled",
        ("tests/test_supply.py::test_nothing_is_pickled",),
    ),
    "tensors": (
        "hostile safetensors, indices and JSON are refused",
        ("tests/hub/test_files.py",),
    ),
    "trust": (
        "no stored file runs code, or has a remote place read",
        ("tests/test_trust.py", "tests/test_places.py", "tests/test_stored_paths.py"),
    ),
    "doctor": (
        "jaxpt doctor finds a flip in, or the absence of, any file",
        ("tests/test_doctor.py", "tests/files/test_checksums.py"),
    ),
    "offline": (
        "sockets but those of loopback raise in every test",
        ("tests/test_supply.py::test_only_loopback_can_be_reached",),
    ),
}


def list_scripts() -> dict[str, str]:
    """The scripts of this folder, with the first sentence of each."""
    texts = {
        path.stem: ast.get_docstring(ast.parse(path.read_text())) or ""
        for path in sorted(HERE.glob("*.py"))
        if path.stem not in HELPERS
    }
    return {
        name: " ".join(text.partition("\n\n")[0].split())
        for name, text in texts.items()
    }


def run_script(name: str, options: list[str]) -> tuple[int, int, int, str]:
    """Runs a script; trials, those that held, the exit code and the output."""
    command = [sys.executable, str(HERE / f"{name}.py")]
    command += options if name in RANDOM else []
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    counts = TRIED.findall(done.stdout)
    tried, held = (int(n.replace(",", "")) for n in (counts or [("0", "0")])[-1])
    return tried, held, done.returncode, done.stdout + done.stderr


def run_tests(nodes: tuple[str, ...]) -> tuple[int, int, int, str]:
    """Runs tests, slow ones too; a case is a trial, and a skipped one is none."""
    with tempfile.TemporaryDirectory() as place:
        results = Path(place) / "results.xml"
        command = [sys.executable, "-m", "pytest", "-n", "0", *nodes]
        command += ["-m", "not gpu and not peers", f"--junitxml={results}"]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        tried = held = 0
        if results.exists():
            suite = ElementTree.parse(results).getroot()[0]
            num = {k: int(suite.get(k, 0)) for k in ("tests", "skipped", "failures")}
            tried = num["tests"] - num["skipped"]
            held = tried - num["failures"] - int(suite.get("errors", 0))
    return tried, held, done.returncode, done.stdout + done.stderr


def main() -> int:
    scripts = list_scripts()
    texts = {name: text for name, (text, _) in GROUPS.items()} | scripts
    parser = argparse.ArgumentParser(prog="tests/trials")
    parser.add_argument("names", nargs="*", help="default: all")
    parser.add_argument("--list", action="store_true", help="the names")
    parser.add_argument("--repeat", type=int, help="of random trials")
    parser.add_argument("--seed", type=int, help="of random trials")
    values = parser.parse_args()
    if values.list:
        print("\n".join(f"{name:10} {text}" for name, text in texts.items()))
        return 0
    if unknown := set(values.names) - set(texts):
        parser.error(f"{', '.join(unknown)}: must be one of {', '.join(texts)}")
    options = [
        f"--{name}={value}"
        for name, value in (("repeat", values.repeat), ("seed", values.seed))
        if value is not None
    ]
    rows, is_whole = [], True
    for name in values.names or texts:
        begun = time.monotonic()
        if name in scripts:
            tried, held, code, output = run_script(name, options)
        else:
            tried, held, code, output = run_tests(GROUPS[name][1])
        holds = tried == held and tried > 0 and code == 0
        is_whole &= holds
        seconds = time.monotonic() - begun
        print(f"{name}: tried {tried}, held {held}; {seconds:.0f} s", flush=True)
        if not holds:
            print("\n".join(output.splitlines()[-40:]), flush=True)
        if drawn := re.search(r"--repeat \d+ --seed \d+", output):
            print(f"  {drawn[0]}")
        rows.append((name, texts[name], tried, held, seconds))
    print("\n| trial | what | tried | held | seconds |\n|---|---|---|---|---|")
    for name, text, tried, held, seconds in rows:
        print(f"| {name} | {text} | {tried} | {held} | {seconds:.0f} |")
    num = [sum(row[i] for row in rows) for i in (2, 3)]
    print(f"\ntried {num[0]}, held {num[1]}")
    return int(not is_whole)


if __name__ == "__main__":
    sys.exit(main())
