"""Files stay readable in one sitting: about 400 lines, never more than 600."""

from pathlib import Path

ROOT = Path(__file__).parents[2]
SOFT, HARD = 400, 600
FOLDERS = ('lagent', 'sandbox', 'docker', 'benchmarks', 'examples', 'scripts', 'tests')
SUFFIXES = {'.py', '.pyi', '.sh'}
# Shared between implementations, and kept in the form in which they are shared.
SHARED = 'tests/conformance/'


def test_no_file_is_too_long() -> None:
    lengths = {
        path.relative_to(ROOT).as_posix(): len(path.read_text().splitlines())
        for folder in FOLDERS
        for path in (ROOT / folder).rglob('*')
        if path.suffix in SUFFIXES and not path.relative_to(ROOT).as_posix().startswith(SHARED)
    }
    assert len(lengths) > 50, 'the folders have moved: say here where they are'
    too_long = {name: count for name, count in lengths.items() if count > HARD}
    assert too_long == {}, f'one idea a file, about {SOFT} lines: split these'
