"""Writes tests/slow.txt, the cases that only `make test-all` runs, from measured times.

    .venv/bin/python -m pytest -n 2 --dist worksteal -m 'not gpu and not peers' \
        -o junit_family=xunit1 --junitxml=times.xml
    .venv/bin/python tests/benchmarks/slow.py times.xml

Of a test with several cases the quickest stays in `make test`, and so do those of
`KEPT`, however long they take: what must never break unseen.
"""

import sys
import xml.etree.ElementTree as ElementTree
from collections import defaultdict
from pathlib import Path

# Seconds: of one of a test's several cases, and of a test that has one alone.
LIMIT, LIMIT_ALONE = 0.4, 4.0
LIST = Path(__file__).resolve().parents[1] / "slow.txt"
# Beginnings of the names of cases.
KEPT = (
    # Every objective learns one batch; documents of a row are isolated in each network.
    "tests/objectives/test_all.py::test_one_batch_is_learnt_by_heart",
    "tests/objectives/test_all.py::test_packed_documents_are_isolated[False",
    # Stopped, killed and resumed is bit for bit the same.
    "tests/training/test_loop.py::test_stopped_and_resumed_ends_bit_identical[mlm",
    "tests/training/test_loop.py::test_killed_with_sigkill_and_started_again",
    # Eight devices are one; two processes are one.
    "tests/training/test_program.py::test_eight_devices_give_one_devices_numbers[mlm",
    "tests/test_launch.py::test_local_processes_do_one_run",
    # A whole comparison, its tuning and its verdicts.
    "tests/comparison/test_compare.py::test_every_run_is_there_with_its_numbers",
    "tests/comparison/test_tuning.py::test_a_comparison_is_tuned",
    "tests/statistics/test_verdicts.py",
    "tests/comparison/test_runs_report.py::test_the_report_is_that_of_the_comparison",
    "tests/comparison/test_parts.py::test_two_workers_of_which_one_is_killed",
    "tests/comparison/test_compare.py::test_a_budget_of_seconds_is_kept",
    "tests/comparison/test_compared_tasks.py::test_every_run_is_asked_and_the_report_says",
    # A fine-tuning that is killed; additions that change nothing at first.
    "tests/finetuning/test_grid.py::test_a_kill_at_any_moment_changes_nothing[between",
    "tests/finetuning/test_grid.py::test_every_kind_of_network_learns[clm",
    "tests/nn/adaptation/test_lora.py::test_at_step_0_it_is_the_network_bit_for_bit[e",
    # Scores of the kinds that are asked most.
    "tests/zero_shot/test_scoring.py::test_every_rule_is_its_loop[clm]",
    "tests/zero_shot/test_scoring.py::test_every_rule_is_its_loop[mlm]",
    # What is measured: a bound, text that was not trained on.
    "tests/objectives/test_masked_diffusion.py::test_the_bound_is_the_exact_one",
    "tests/training/test_measure.py::test_a_likelihood_is_that_of_text_not_trained_on",
    # Traps of a source.
    "tests/objectives/test_bart.py::test_sentences_do_change_places",
    "tests/objectives/test_electra.py::test_the_specs_temperature_is_the_one",
    # Models in and out.
    "tests/hub/test_families.py::test_numbers_are_those_of_transformers",
    "tests/hub/test_weights.py::test_stories_repeat_their_golden_text",
    "tests/hub/test_imports.py::test_a_moved_run_goes_on_and_is_a_config",
)


def list_slow(times: dict[str, float]) -> list[str]:
    """The cases above their limit but for those that stay, sorted."""
    cases = defaultdict(list)
    for name, seconds in times.items():
        cases[name.partition("[")[0]].append((seconds, name))
    several = {test: found for test, found in cases.items() if len(found) > 1}
    quickest = {min(found)[1] for found in several.values()}

    def is_slow(name: str) -> bool:
        limit = LIMIT if name.partition("[")[0] in several else LIMIT_ALONE
        return times[name] > limit

    kept = lambda name: name in quickest or name.startswith(KEPT)  # noqa: E731
    return sorted(name for name in times if is_slow(name) and not kept(name))


def read_times(path: str) -> dict[str, float]:
    """Seconds of each case, its fixtures included, by its name as pytest has it."""
    cases = ElementTree.parse(path).getroot().iter("testcase")
    return {
        f"{case.get('file')}::{case.get('name')}": float(case.get("time", 0))
        for case in cases
        if case.find("skipped") is None
    }


if __name__ == "__main__":
    slow = list_slow(read_times(sys.argv[1]))
    LIST.write_text("".join(f"{name}\n" for name in slow), encoding="utf-8")
    print(f"{LIST}: {len(slow)} cases")
