"""`sandbox run` and `ps` for real, as a person or a shell script would use them."""

import json
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

pytestmark = pytest.mark.docker

SANDBOX = str(Path(sys.executable).with_name('sandbox'))


def sandbox(*words: str, code: str = '', timeout: float = 90) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [SANDBOX, *words],
        input=textwrap.dedent(code),
        capture_output=True,
        text=True,
        timeout=timeout,
    )


def run(code: str, *options: str) -> tuple[int, str, str]:
    done = sandbox('run', '-', *options, code=code)
    return done.returncode, done.stdout, done.stderr


def containers() -> list[dict[str, object]]:
    return list(json.loads(sandbox('ps', '--json').stdout))


def test_output_goes_to_the_streams_it_was_written_to() -> None:
    code = """
        import sys
        print('out')
        print('err', file=sys.stderr)
        6 * 7
    """
    assert run(code) == (0, 'out\n42\n', 'err\n')


def test_a_file_with_an_encoding_of_its_own(tmp_path: Path) -> None:
    script = tmp_path / 'script.py'
    script.write_bytes(
        "# coding: latin-1\nprint('\u00e9' if __name__ == '__main__' else 0)\n".encode('latin-1')
    )
    done = sandbox('run', str(script))
    assert (done.returncode, done.stdout, done.stderr) == (0, '\u00e9\n', '')


def test_an_error_is_shown_and_counted() -> None:
    status, out, err = run("print('before')\n1 / 0")
    assert (status, out) == (1, 'before\n')
    assert err.rstrip().endswith('ZeroDivisionError: division by zero')


def test_exit_codes_of_scripts_are_passed_on() -> None:
    assert run('import sys; sys.exit(3)') == (3, '', '')
    assert run("import sys; sys.exit('no data')") == (1, '', 'no data\n')
    assert run('exit()') == (0, '', '')


def test_time_runs_out() -> None:
    status, out, err = run("print('up', flush=True)\nwhile True: pass", '--timeout', '1')
    assert (status, out) == (124, 'up\n')
    assert 'sandbox: the cell reached its time limit of 1 s' in err


def test_memory_runs_out() -> None:
    status, _, err = run('x = bytearray(600 << 20)', '--memory', '128m')
    assert status == 137
    assert 'out of memory (limit 128 MiB)' in err


def test_the_kernel_dies() -> None:
    status, _, err = run('import os; os._exit(4)')
    assert status == 137
    assert 'ended with exit code 4' in err


def test_no_network_unless_asked_for() -> None:
    code = "import pathlib; print(sorted(p.name for p in pathlib.Path('/sys/class/net').iterdir()))"
    assert run(code) == (0, "['lo']\n", '')
    status, out, _ = run(code, '--network', 'full')
    assert status == 0
    assert 'eth0' in out


def test_named_hosts_only() -> None:
    code = """
        import urllib.error, urllib.request
        for host in ('other.test', '10.0.0.1'):
            try:
                urllib.request.urlopen(f'http://{host}/', timeout=20)
            except urllib.error.HTTPError as error:
                print(error.code, error.reason)
    """
    status, out, err = run(code, '--allow', 'allowed.test:80', '--allow', '*.example.org')
    assert (status, out) == (0, '403 not on the allow-list\n403 not a host name\n'), err
    assert 'sandbox: the network policy refused' in err


def test_files_go_in_and_come_out(tmp_path: Path) -> None:
    table = tmp_path / 'table.csv'
    table.write_text('a\n1\n2\n')
    out = tmp_path / 'out'
    code = """
        import os
        import matplotlib.pyplot as plt
        numbers = [int(line) for line in open('table.csv').read().split()[1:]]
        os.makedirs('deep/er')
        open('deep/er/sum.txt', 'w').write(str(sum(numbers)))
        plt.plot(numbers)
        plt.show()
    """
    done = sandbox('run', '-', '--upload', str(table), '--output-dir', str(out), code=code)
    assert (done.returncode, done.stdout) == (0, ''), done.stderr
    assert (out / 'deep' / 'er' / 'sum.txt').read_text() == '3'
    assert (out / 'output-1.png').read_bytes().startswith(b'\x89PNG\r\n')
    assert f'sandbox: saved {out}/output-1.png' in done.stderr
    assert not (out / 'table.csv').exists()


def test_json_is_all_there_is() -> None:
    status, out, err = run("print('x')\n1 / 0", '--json')
    assert (status, err) == (1, '')
    result = json.loads(out)
    assert result['outcome'] == 'error'
    assert [output['kind'] for output in result['outputs']] == ['stdout', 'error']


def test_nothing_a_terminal_obeys_comes_out() -> None:
    assert run(r"print('\x1b]52;c;aGk=\x07\x1b[2Jhi\u202e')") == (0, 'hi\n', '')


@pytest.mark.parametrize(('sent', 'status'), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signals_end_the_code_and_leave_nothing_behind(sent: signal.Signals, status: int) -> None:
    code = textwrap.dedent("""
        import time
        print('up', flush=True)
        try:
            time.sleep(60)
        finally:
            print('down', flush=True)
    """)
    process = subprocess.Popen(
        [SANDBOX, 'run', '-'],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(code)
    process.stdin.close()
    process.stdin = None
    assert process.stdout.readline() == 'up\n'
    mine = [found for found in containers() if found['owner_pid'] == process.pid]
    assert [found['owner_state'] for found in mine] == ['alive']

    process.send_signal(sent)
    out, err = process.communicate(timeout=30)
    assert process.returncode == status, err
    if sent == signal.SIGINT:
        assert out == 'down\n'
    left = [found for found in containers() if found['owner_pid'] == process.pid]
    assert left == []


def test_doctor_finds_what_it_needs() -> None:
    done = sandbox('doctor', '--json')
    found = {finding['name']: finding for finding in json.loads(done.stdout)}
    assert done.returncode == 0
    assert found['kernel image']['detail'].startswith('lagent-sandbox:')


def test_build_finds_the_image_and_gives_it_another_name() -> None:
    done = sandbox('build', '--tag', 'lagent-sandbox:named-by-test')
    try:
        assert (done.returncode, done.stdout) == (0, 'lagent-sandbox:named-by-test\n')
    finally:
        from sandbox.backends.engine import engine

        with engine() as client:
            client.images.remove('lagent-sandbox:named-by-test')
