"""What a record of a speedrun states in addition to a study (`jaxpt archive --record`).

    objective          of all runs
    text               the sha256 of each split's ids
    tokenizer_sha256   of all that determines the ids of plain text
    code_sha256        of the Python files of the package that archived it
    devices            of the runs, such as "1 x cpu"
    rerun_of           the name of the record that it repeats; "" for a record

The rules of speedruns are in the repository (docs/speedruns.md); here is only what a
record of any speedrun satisfies.
"""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jaxpt.errors import UserError, argument
from jaxpt.text.tokens import tokenizer as tokenizers
from jaxpt.text.tokens.tokenizer import Tokenizer

PACKAGE = Path(__file__).parents[1]


def make_record(
    report: Mapping[str, Any],
    text: Mapping[str, str],
    tokenizer: Tokenizer,
    rerun_of: str = "",
) -> dict[str, Any]:
    """The facts of a record.

    Args:
      report: of the comparison.
      text: by split, its fingerprint.

    Raises:
      UserError: the comparison is not of one objective in one setting, a run diverged,
        or the seeds are not 0, 1, 2, ...
    """
    runs = report["runs"]
    names = sorted({run["name"] for run in [*runs, *report.get("diverged", [])]})
    if len(names) != 1:
        raise UserError(
            f"{argument('record')}: must have one objective in one setting, has "
            f"{', '.join(names)}"
        )
    if report.get("diverged"):
        raise UserError(f"{argument('record')}: must have no diverged run")
    seeds = sorted(run["seed"] for run in runs)
    if seeds != list(range(len(seeds))):
        raise UserError(
            f"{argument('record')}: has the seeds {seeds}; must have 0, 1, 2, ... "
            f"without a gap"
        )
    return {
        "objective": runs[0]["objective"],
        "text": dict(text),
        "tokenizer_sha256": tokenizers.fingerprint(tokenizer),
        "code_sha256": identify_code(),
        "devices": sorted({run.get("device", "") for run in runs}),
        "rerun_of": rerun_of,
    }


def identify_code(package: Path = PACKAGE) -> str:
    """The sha256 of the paths and contents of a package's Python files, in hex."""
    digest = hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        digest.update(path.relative_to(package).as_posix().encode() + b"\0")
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()
