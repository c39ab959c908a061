"""The questions of `jaxpt.evaluation.regret`, and the metric of each."""

LEFT, BOTH = "left_to_right", "two_sided"
METRICS = {LEFT: "regret_left_to_right", BOTH: "regret_two_sided"}
