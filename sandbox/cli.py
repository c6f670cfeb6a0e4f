"""The `sandbox` command: build the kernel image, run a file, look after what is there.

Exit codes: see `sandbox.exit_codes`.
"""

import contextlib
import json
import re
import signal
import sys
import threading
import time
import tokenize
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path, PurePosixPath
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any, Literal, NoReturn

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from sandbox.console import LivePrinter, printable
from sandbox.egress.allowlist import Allowlist
from sandbox.errors import BackendUnavailable, FileRefused, ImageMissing, PolicyError, SandboxError
from sandbox.exit_codes import NO_BASE, TERMINATED, exit_code, show, show_error, told_errors
from sandbox.policy import DEFAULT_VARIANT, SandboxPolicy, Variant
from sandbox.session import Sandbox
from sandbox.types import ExecutionResult

if TYPE_CHECKING:
    from sandbox.reaper import Container

_SIZE = re.compile(r'(\d+(?:\.\d+)?)\s*([kmg]?)(?:i?b)?', re.IGNORECASE)
_UNITS = {'': 1, 'k': 1 << 10, 'm': 1 << 20, 'g': 1 << 30}

app = typer.Typer(
    name='sandbox',
    help='Run Python that nobody has read in a hardened container.',
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

Json = Annotated[bool, typer.Option('--json', help='Print JSON instead of text.')]


def parse_size(text: str) -> int:
    """Read a number of bytes such as `512m`, `1.5g` or `1073741824`.

    Raises:
        typer.BadParameter: It is none.
    """
    if not (found := _SIZE.fullmatch(text.strip())):
        raise typer.BadParameter(f'{text!r} is not a size; write 512m, 1.5g or bytes')
    return int(float(found[1]) * _UNITS[found[2].lower()])


@app.command()
def build(
    base: Annotated[
        str | None,
        typer.Option(
            help='Image to build on; `bootstrap` makes one from Debian packages, as root.'
        ),
    ] = None,
    variant: Annotated[
        Variant,
        typer.Option(help='NumPy, pandas and matplotlib, or the usual libraries for data.'),
    ] = DEFAULT_VARIANT,
    package: Annotated[
        list[str] | None,
        typer.Option(
            metavar='REQUIREMENT',
            help="A package of an index to install besides, such as 'humanize==4.9.0', for a "
            'policy that asks for it; may be repeated.',
        ),
    ] = None,
    tag: Annotated[str | None, typer.Option(help='A further name for the image.')] = None,
) -> None:
    """Build a kernel image, unless it is there."""
    from sandbox.backends.engine import engine
    from sandbox.image import build_image

    console = Console(stderr=True)
    with told_errors(console), console.status('Starting') as status:

        def progress(line: str) -> None:
            status.update(escape(printable(line)))
            if not console.is_terminal:
                show(console, line)

        try:
            name = build_image(base, variant=variant, packages=package or (), progress=progress)
        except PolicyError as error:
            raise typer.BadParameter(str(error)) from None
        except ImageMissing as error:
            show_error(console, error)
            raise typer.Exit(NO_BASE) from None
        if tag is not None:
            with engine() as client:
                client.images.get(name).tag(tag)
    typer.echo(tag or name)


@app.command()
def run(
    file: Annotated[str, typer.Argument(help='A Python file, or - to read from standard input.')],
    upload: Annotated[
        list[Path] | None,
        typer.Option(exists=True, dir_okay=False, help='A file to put into the workspace first.'),
    ] = None,
    output_dir: Annotated[
        Path | None,
        typer.Option(file_okay=False, help='Where to save images, and files that the code made.'),
    ] = None,
    timeout: Annotated[
        float | None, typer.Option(min=0.1, help='Seconds that the code may run.  [default: 60]')
    ] = None,
    memory: Annotated[
        int | None,
        typer.Option(parser=parse_size, metavar='SIZE', help='Such as 512m.  [default: 1g]'),
    ] = None,
    network: Annotated[
        Literal['none', 'full'], typer.Option(help='What the code can reach.')
    ] = 'none',
    allow: Annotated[
        list[str] | None,
        typer.Option(
            metavar='HOST[:PORT]',
            help='A host that the code can reach, such as pypi.org or *.example.org:443, and '
            'nothing else; may be repeated. Without a port: 80 and 443.',
        ),
    ] = None,
    variant: Annotated[
        Variant, typer.Option(help='Which kernel image, with Docker.')
    ] = DEFAULT_VARIANT,
    package: Annotated[
        list[str] | None,
        typer.Option(
            metavar='REQUIREMENT',
            help='A package that the image has besides; as in `sandbox build`.',
        ),
    ] = None,
    backend: Annotated[
        Literal['docker', 'bubblewrap', 'auto', 'local'],
        typer.Option(help='Where it runs; auto: Docker or else bubblewrap; local: unprotected.'),
    ] = 'docker',
    unsafe: Annotated[bool, typer.Option('--unsafe', help='Allow the local back end.')] = False,
    as_json: Annotated[
        bool, typer.Option('--json', help='Print the whole result as JSON at the end, only.')
    ] = False,
) -> None:
    """Run a Python file in a fresh session.

    What it prints appears as it is printed. The first Ctrl-C interrupts the code, a second one ends
    the command. The exit code tells how it went: 0 the code ran to its end, 1 it raised, 124 its
    time ran out, 125 the sandbox failed, 130 interrupted, 137 the kernel died or ran out of memory;
    a number that the code passes to `sys.exit` is passed on.
    """
    if backend == 'local' and not unsafe:
        raise typer.BadParameter(
            'the local back end isolates nothing: code can read, change and send whatever you can; '
            'add --unsafe if you trust it'
        )
    code = _read_code(file)
    policy = _policy(
        memory=memory,
        network=_network(network, allow or []),
        variant=variant,
        packages=tuple(package or ()),
    )
    printer = LivePrinter(output_dir, silent=as_json)
    with told_errors(Console(stderr=True)):
        with Sandbox(policy=policy, backend=backend, unsafe=unsafe) as box:
            for path in upload or []:
                box.upload(path)
            result = _execute(box, code, timeout, printer)
            if output_dir is not None:
                _save_files(box, result, output_dir, printer)
        if as_json:
            typer.echo(json.dumps(result.to_dict()))
    raise typer.Exit(exit_code(result))


@app.command()
def doctor(as_json: Json = False) -> None:
    """Show what this machine can enforce, and why not."""
    from sandbox.doctor import examine, usable

    findings = examine()
    if as_json:
        typer.echo(json.dumps([vars(finding) for finding in findings]))
    else:
        marks = {
            'ok': '[green]ok[/]',
            'warning': '[yellow]warning[/]',
            'missing': '[red]missing[/]',
        }
        table = Table('', 'what', 'found', 'what to do', box=None, pad_edge=False)
        for finding in findings:
            table.add_row(
                marks[finding.status],
                finding.name,
                escape(printable(finding.detail)),
                escape(printable(finding.hint)),
            )
        Console().print(table)
    raise typer.Exit(0 if usable(findings) else 1)


@app.command()
def ps(as_json: Json = False) -> None:
    """List the containers of all sandboxes on this machine, and whom they belong to."""
    from sandbox.reaper import containers

    with told_errors(Console(stderr=True)):
        found = containers()
    if as_json:
        typer.echo(json.dumps([_describe(container) for container in found]))
        return
    if not found:
        typer.echo('no sandboxes')
        return
    table = Table('container', 'session', 'state', 'owner', 'age', box=None, pad_edge=False)
    for container in found:
        words = _describe(container)
        owner = f'{words["owner_state"]} ({words["owner_pid"] or "?"})'
        cells = [words['container'][:12], words['session'], words['status'], owner]
        age = str(timedelta(seconds=words['age']))
        table.add_row(*(escape(printable(str(cell))) for cell in cells), age)
    Console().print(table)


@app.command()
def gc(as_json: Json = False) -> None:
    """Remove what crashed programs have left behind; never what a living one uses."""
    from sandbox.reaper import collect_garbage

    console = Console(stderr=True)
    with told_errors(console):
        try:
            removed = collect_garbage()
        except BackendUnavailable as error:
            removed = collect_garbage(docker=False)
            show(console, f'Containers were not looked for: {error.message}')
    if as_json:
        typer.echo(json.dumps([vars(orphan) for orphan in removed]))
        return
    for orphan in removed:
        typer.echo(f'removed {orphan.kind} {printable(orphan.name)}')
    if not removed:
        typer.echo('nothing to remove')


def _describe(container: 'Container') -> dict[str, Any]:
    return {
        'container': container.id,
        'name': container.name,
        'session': container.session or '',
        'image': container.image,
        'status': 'warm' if container.session is None else container.status,
        'owner_pid': container.owner.pid if container.owner else None,
        'owner_state': container.owner_state,
        'age': max(0, round(time.time() - container.created)),
    }


def _execute(
    box: Sandbox, code: str, timeout: float | None, printer: LivePrinter
) -> ExecutionResult:
    with _interrupting(box):
        for event in box.stream(code, timeout=timeout):
            if event.result is not None:
                printer.finish(event.result)
                return event.result
            if event.output is not None:
                printer.show(event.output)
    raise SandboxError('The sandbox gave no result.')


def _save_files(box: Sandbox, result: ExecutionResult, folder: Path, printer: LivePrinter) -> None:
    for info in result.artifacts:
        try:
            # The name is checked before anything is done with it or with the folder made of it.
            path = box.download(info.path, folder / PurePosixPath(info.path).parent)
        except FileRefused as error:
            printer.note(error.message)
        else:
            printer.note(f'saved {path}')


@contextlib.contextmanager
def _interrupting(box: Sandbox) -> Iterator[None]:
    """Make the first Ctrl-C interrupt the code; the next one ends the command as usual."""

    def interrupt(_signal: int, _frame: FrameType | None) -> None:
        signal.signal(signal.SIGINT, previous)
        threading.Thread(target=ask, daemon=True).start()

    def ask() -> None:
        with contextlib.suppress(SandboxError):
            box.interrupt()

    previous = signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)


def _read_code(file: str) -> str:
    try:
        if file == '-':
            return sys.stdin.read()
        with tokenize.open(file) as source:
            return source.read()
    except (OSError, SyntaxError, UnicodeDecodeError) as error:
        raise typer.BadParameter(f'{file} cannot be read: {error}') from None


def _network(
    network: Literal['none', 'full'], allow: list[str]
) -> Literal['none', 'full'] | Allowlist:
    if not allow:
        return network
    if network == 'full':
        raise typer.BadParameter('--allow limits what --network full opens; leave one of them out')
    try:
        return Allowlist(allow)
    except PolicyError as error:
        raise typer.BadParameter(str(error)) from None


def _policy(**wishes: Any) -> SandboxPolicy:
    try:
        return SandboxPolicy(**{name: value for name, value in wishes.items() if value is not None})
    except PolicyError as error:
        raise typer.BadParameter(str(error)) from None


def _terminated(_signal: int, _frame: FrameType | None) -> NoReturn:
    raise SystemExit(TERMINATED)  # so that the session is closed on the way out


def main() -> None:
    """Run the command line; the entry point of the `sandbox` script."""
    signal.signal(signal.SIGTERM, _terminated)
    app()
