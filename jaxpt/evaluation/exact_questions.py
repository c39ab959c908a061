"""The questions of `jaxpt.evaluation.regret`, and the metrics of text of a language."""

LEFT, BOTH = "left_to_right", "two_sided"
METRICS = {LEFT: "regret_left_to_right", BOTH: "regret_two_sided"}
# Of a task: `jaxpt.evaluation.whole_answers`.
ACCURACY, SECOND = "answer_accuracy", "second_token_accuracy"
