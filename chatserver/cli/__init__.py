"""The command line: one module per command, imported only when the command runs.

To read the code, start with `main`, which lists the commands. Commands of features and operator
tools are in the `cli` modules of their packages.
"""
