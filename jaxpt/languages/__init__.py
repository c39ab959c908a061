"""Artificial languages: text of a known distribution, with its exact conditionals."""

# The module of each, by the name that a path begins with: "hmm:states=64".
LANGUAGES = {
    "hmm": "jaxpt.languages.hmm",
    "pcfg": "jaxpt.languages.pcfg",
    "copy": "jaxpt.languages.copying",
    "star": "jaxpt.languages.star",
    "facts": "jaxpt.languages.facts",
    "recall": "jaxpt.languages.recall",
}


def is_language(path: str) -> bool:
    """Whether a path names a language.

    >>> is_language("hmm:"), is_language("hmm:states=8:valid"), is_language("hmm.txt")
    (True, True, False)
    """
    name, colon, _ = path.partition(":")
    return bool(colon) and name in LANGUAGES


# The questions about a token that have exact answers, and the metric of each
# (`jaxpt.evaluation.regret`).
LEFT, BOTH = "left_to_right", "two_sided"
REGRETS = {LEFT: "regret_left_to_right", BOTH: "regret_two_sided"}
# The metrics of a task's whole answers (`jaxpt.evaluation.whole_answers`).
ACCURACY, SECOND = "answer_accuracy", "second_token_accuracy"
