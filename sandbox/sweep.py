"""A look for leftovers when a sandbox is started: in the background, and not often."""

import logging
import threading
import time

_LOG = logging.getLogger(__name__)
_INTERVAL = 60.0

_lock = threading.Lock()
_last = -_INTERVAL


def sweep_soon(backend: str) -> None:
    """Remove what dead programs have left, unless that was done in the last minute.

    It never fails and is not waited for: a program that ends meanwhile leaves the rest to the next.

    Args:
        backend: Name of the back end in use; only for `'docker'` is the engine asked.
    """
    global _last  # noqa: PLW0603 - one for the process, like the leftovers are one for the machine
    with _lock:
        if backend == 'fake' or time.monotonic() < _last + _INTERVAL:
            return
        _last = time.monotonic()
    threading.Thread(target=_sweep, args=(backend,), name='sandbox-sweep', daemon=True).start()


def _sweep(backend: str) -> None:
    from sandbox.reaper import collect_garbage

    try:
        for orphan in collect_garbage(docker=backend == 'docker'):
            _LOG.info('Removed the %s %s of a program that has died.', orphan.kind, orphan.name)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is no reason not to start
        _LOG.info('Not everything that dead programs have left could be removed: %s', error)
