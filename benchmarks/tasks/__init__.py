"""Questions about data with exact answers, for any model: how many does it solve, at what cost.

`python -m benchmarks.tasks --help` says how to run them, docs/tasks.md what counts as solved.
"""
