"""Libraries that pip can install and that run Python in containers, beside ours.

Same engine, same machine, same kernel image (for the others with what they need added to it), each
in an environment of its own, in turns. An adapter is a class with `open`, `run` and `close`, short,
and takes the fastest way that its library documents. What a library cannot do is said, not hidden.
"""
