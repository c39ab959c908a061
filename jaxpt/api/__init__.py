"""The Python API behind `import jaxpt`: trained runs, and commands as functions.

Paths are strings or `Path`s. Errors are `UserError`s of one line that name the argument.
"""
