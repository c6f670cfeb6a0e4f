"""Figures of lagent and sandbox, each beside a floor that was measured in the same run.

A machine's speed, its load and its mood go into every absolute figure, so what counts is the
ratio: ours to the fastest simple program anybody could write for the same thing, on the same
image, with the same hardening, taken in turns. `python -m benchmarks --help` says how to run them.
"""
