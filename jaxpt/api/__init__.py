"""The Python API behind `import jaxpt`: trained runs, and commands as functions.

Paths are strings or `Path`s. An error is a `UserError` of one line that names the
argument.
"""
