"""What `import jaxpt` offers: runs to use, and what the commands do, as functions.

All take strings and Paths alike. What is wrong with an argument is a `UserError`, in
one line that names it; a flag `--top_k` of the command line is `top_k` here.
"""
