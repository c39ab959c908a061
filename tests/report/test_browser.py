"""Pages of hostile names in a browser: no script runs, and nothing is requested.

    CHROMIUM=/usr/bin/chromium python -m pytest -m browser tests/report

The pages forbid scripts and requests; the tests also open them without that policy, so
that text which is not escaped would run.
"""

import contextlib
import csv
import html
import io
from pathlib import Path

import pytest
from report.chromium import Chromium
from reports import make_full_report

from jaxpt.cli.main import main
from jaxpt.comparison.studies import load_study
from jaxpt.report import page
from jaxpt.report.types import Report

pytestmark = pytest.mark.browser
ROOT = Path(__file__).resolve().parents[2]
AWAY = "http://127.0.0.1:9/away"
HIT = "hit(name)"  # a function of the page that reports its call
PAYLOADS = (
    f"<script>{HIT}</script>",
    f"</title></style></svg><script>{HIT}</script>",
    f'"><img src={AWAY} onerror={HIT}>',
    f"' onmouseover='{HIT}' autofocus onfocus='{HIT}",
    f'" onclick="{HIT}',
    f"javascript:{HIT}",
    f'<a href="javascript:{HIT}">a</a>',
    f"]]><svg onload={HIT}><use href={AWAY} /></svg>",
    f"&lt;script&gt;{HIT}&lt;/script&gt;",
    f"<style>@import '{AWAY}'; * {{background: url({AWAY})}}</style>",
    f'<base href="{AWAY}"><meta http-equiv=refresh content="0;url={AWAY}">',
    "{{ 7*7 }} {% raw %} <!-- --> \\",
    "\u202eabc\u2066\u2069\u200f\u0000\u001b[31m\u0085\u2028\ufeff\ud800",
)
ALL = " ".join(PAYLOADS)
ENCODED = ALL.encode(errors="ignore").decode()  # without half a surrogate pair


FREE = frozenset(
    "title created version note label description reference path workdir tokenizer "
    "reason line lines notes warnings text source verdict device".split()
)


def poison(value, names, key=""):
    """A report whose names and free texts are hostile; what code reads stays.

    Args:
      names: of objectives, each with its new name.
    """
    if isinstance(value, dict):
        return {names.get(k, k): poison(v, names, k) for k, v in value.items()}
    if isinstance(value, list):
        return [poison(each, names, key) for each in value]
    if not isinstance(value, str):
        return value
    return f"{value} {ALL}" if key in FREE else names.get(value, value)


def write_study(folder):
    """The page of an archived study."""
    content = load_study(ROOT / "results" / "orderings-1e12").report
    known = dict.fromkeys(run["name"] for run in content["runs"])
    names = {n: f"{n} {PAYLOADS[i]}" for i, n in enumerate(known)}
    content = poison(content, names) | {"config": {ALL: [ALL, {"a": ALL}]}}
    return page.write_report(Report.from_json(content), folder)


def write_samples(folder):
    """A page with samples of hostile tokens, a note and a picture's name."""
    kinds = ("given", "right", "wrong", "written", "truth", "caught", "missed", "alarm")
    pieces = [[text, kind, text] for kind in kinds for text in PAYLOADS]
    forms = {form: [pieces] for form in ("fills", "fakes", "continuation")}
    content = make_full_report().to_json()
    content["samples"] = {"clm": {"seed": 0, "forms": forms}}
    content |= {"figures": {f"fig {ALL}": "a.svg"}, "notes": {ALL: ALL}}
    (folder / "a.svg").write_text(f'<svg xmlns="http://www.w3.org/2000/svg">{ENCODED}')
    return page.write_report(Report.from_json(content), folder)


def write_verdict(folder):
    """The tables of `jaxpt verdict` with hostile systems and metrics."""
    table, path = folder / "scores.csv", folder / "verdict.html"
    with open(table, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["system", "seed", "metric", "score"])
        for i, name in enumerate(PAYLOADS[:-1]):
            for seed in range(4):
                for metric in (f"m {name}", ENCODED[:200]):
                    writer.writerow([name, seed, metric, i + seed / 9])
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        assert main(["verdict", str(table), "--format=html", "--metric=metric"]) == 0
    path.write_text(f"<!DOCTYPE html><meta charset=utf-8>{out.getvalue()}")
    return path


def write_plain(folder):
    """Nothing is escaped here: what the tests must see."""
    path = folder / "plain.html"
    path.write_text(f"<!DOCTYPE html><meta charset=utf-8><p>{ENCODED}")
    return path


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with Chromium(tmp_path_factory.mktemp("profile")) as browser:
        yield browser


# Every element is pointed at, focused and pressed; a link to a script is followed.
TOUCH = """
for (const each of document.querySelectorAll("*")) {
  for (const kind of ["mouseover", "focus", "click"])
    each.dispatchEvent(new MouseEvent(kind, { bubbles: true, cancelable: true }));
  if (/^javascript:/.test(each.getAttribute("href") ?? "")) each.click();
}
"""


def look(browser, path, ignores_policy):
    """Whether a script ran, and what was requested; each element is touched."""
    browser.open(path, ignores_policy)
    browser.evaluate(TOUCH)
    browser.evaluate("new Promise((done) => setTimeout(done, 300)) && 1")
    asked = [url for url in browser.list_requests() if url != path.as_uri()]
    return browser.num_calls > 0, asked


@pytest.mark.parametrize("ignores_policy", [False, True])
@pytest.mark.parametrize("write", [write_study, write_samples, write_verdict])
def test_hostile_names_run_nothing_and_request_nothing(
    write, ignores_policy, browser, tmp_path
):
    path = write(tmp_path)
    assert HIT in html.unescape(path.read_text(encoding="utf-8"))
    assert look(browser, path, ignores_policy) == (False, [])
    tags = browser.evaluate(
        "[...new Set([...document.querySelectorAll('*')].map((x) => x.localName))]"
    )
    assert not {"script", "iframe", "object", "link", "base", "form"} & set(tags)
    assert browser.evaluate("document.body.innerText").count(HIT) > 9


def test_the_browser_runs_what_is_not_escaped(browser, tmp_path):
    """So that the tests above can fail."""
    has_run, asked = look(browser, write_plain(tmp_path), True)
    assert has_run and AWAY in asked
