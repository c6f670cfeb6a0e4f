"""The bridge from synchronous code to coroutines.

A process has one event-loop thread, and `sandbox` owns it; the model classes and stores of
`lagent` wait on the same one, so it is re-exported here instead of being written twice.
"""

from sandbox import Portal, PortalError, blocking, blocking_iterator, get_portal

__all__ = ['Portal', 'PortalError', 'blocking', 'blocking_iterator', 'get_portal']
