"""Ours."""

from sandbox import Sandbox


class Adapter:
    """A sandbox."""

    def __init__(self, image: str) -> None:
        del image  # the kernel image itself
        self._box = Sandbox()

    def open(self) -> None:
        """Start it."""
        self._box.start()

    def run(self, code: str, timeout: float) -> str:
        """Run a cell."""
        return printed(self._box, code, timeout)

    def close(self) -> None:
        """End it."""
        self._box.close()


def printed(box: Sandbox, code: str, timeout: float) -> str:
    """Run a cell and return all that it printed, from the file that holds it if it is long."""
    result = box.execute(code, timeout)
    if result.outcome == 'timeout':
        raise TimeoutError
    if result.full_output:
        return box.read(result.full_output[0].path).decode()
    return result.stdout
