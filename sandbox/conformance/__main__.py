"""`python -m sandbox.conformance`: pytest on the expectations, with its options and ours."""

import sys
from pathlib import Path

import pytest


def main() -> int:
    """Run the expectations and return pytest's exit code."""
    folder = Path(__file__).parent
    return pytest.main([str(folder), '--import-mode=importlib', *sys.argv[1:]])


if __name__ == '__main__':
    raise SystemExit(main())
