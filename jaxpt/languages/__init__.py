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
