"""Back ends: where a sandbox runs, and how well it is isolated there."""

from sandbox.backends.base import Backend, Endpoint, Instance

__all__ = ['Backend', 'Endpoint', 'Instance', 'get_backend']


def get_backend(
    backend: str | Backend, *, image: str | None = None, unsafe: bool = False
) -> Backend:
    """Return a back end by its name.

    Args:
        backend: `'docker'`, `'bubblewrap'`, `'auto'`, `'local'` or `'fake'`, or a back end, which
            is returned as it is.
        image: Kernel image of the Docker back end; the one of this version if None.
        unsafe: Consent to a back end that isolates nothing.

    Raises:
        ValueError: There is no back end of that name, or an argument does not fit it.
    """
    if image is not None and backend != 'docker':
        name = repr(backend) if isinstance(backend, str) else type(backend).__name__
        raise ValueError(
            f"image goes with backend='docker', or into DockerBackend, not with {name}."
        )
    if not isinstance(backend, str):
        return backend
    if backend == 'docker':
        from sandbox.backends.docker import DockerBackend

        return DockerBackend(image=image)
    if backend == 'bubblewrap':
        from sandbox.backends.bubblewrap import BubblewrapBackend

        return BubblewrapBackend()
    if backend == 'auto':
        from sandbox.backends.auto import AutoBackend

        return AutoBackend()
    if backend == 'local':
        from sandbox.backends.local import LocalBackend

        return LocalBackend(unsafe=unsafe)
    if backend == 'fake':
        from sandbox.backends.fake import FakeBackend

        return FakeBackend()
    raise ValueError(
        f"There is no back end {backend!r}; choose 'docker', 'bubblewrap', 'auto', 'local' or "
        "'fake'."
    )
