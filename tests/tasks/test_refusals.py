"""Settings of tasks that are refused."""

import pytest
from tiny_refusals import check_refusal, refused

from jaxpt.tasks import classification, span_qa, tagging, text_to_text

CLASSIFICATION = """
    labels=('a',); label_names=('x',) & labels=('a', 'b') ... label_names
    metric=wit; metric=mcc & separator=,; both_orders=True; positive=a; dropout=1.0
"""
TAGGING = "words=''; metric=f1; labels=('O',); max_len=-1"
SPAN_QA = "answers=''; null_mark=X; stride=0; metric=em"
TEXT_TO_TEXT = """
    kind=essay; inputs=(); keys=('a', 'b'); target=gold*
    labels=('0', '1') & kind=number; words=('a', 'b'); drop=x; metric=rouge1
    max_target=1; num_beams=0; over_references=min; group=mr: must be empty
"""


@pytest.mark.parametrize(
    "make, parts",
    [
        *refused(classification.Spec, "task", CLASSIFICATION),
        *refused(tagging.Spec, "task", TAGGING),
        *refused(span_qa.Spec, "task", SPAN_QA),
        *refused(text_to_text.Spec, "task", TEXT_TO_TEXT),
        (lambda: text_to_text.Spec(positive="1"), ["task.positive=1: must "]),
    ],
)
def test_bad_settings_are_refused(make, parts, refuses):
    check_refusal(make, parts, refuses)
