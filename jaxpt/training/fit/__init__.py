"""Whether a run fits a described GPU or TPU, from XLA's compilers without the device.

target          "h200:8" -> described devices
program_text    the text of a compiled program -> counts
estimate        a config and a target -> the counts of a step, as a `Fit`
wording         a `Fit` -> lines for a terminal
"""
