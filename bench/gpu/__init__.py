"""``python -m bench.gpu --out FOLDER``: what the package does on one GPU, in eight stages of two minutes at most.

Each stage is a process of its own that writes FOLDER/<stage>.json when it is done, and is skipped where that is there:
the same command goes on after a stop. ``--report`` writes the tables, measured numbers beside what the shapes need at
the rates that were measured (or at an H200's, named as such). ``--tiny`` runs the same code on the CPU at tiny shapes.
Needs the tree, torch, transformers, pydantic, gymnasium and numpy.
"""
