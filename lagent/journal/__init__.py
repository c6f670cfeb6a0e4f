"""Runs that survive: every effect is recorded before and after, and given back on resume.

::

    agent.run('How many rows has sales.csv?', run_id='report-7', journal='runs.db')

does the same as calling the agent, and after a crash the same line goes on where it was.
"""

import lazy_loader as _lazy

__getattr__, __dir__, __all__ = _lazy.attach_stub(__name__, __file__)
