"""Looks at files inside a sandbox. Its sources are sent there; they need the standard library only.

Modules import one another relatively and in the order of `lagent.analysis.look.MODULES`. What they
give is plain JSON, which the host believes nothing of before it has checked it.
"""
