"""Which of flag, environment, project file and user file decides, and what a project may not."""

import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from lagent import cli
from lagent.errors import ConfigError
from lagent.settings import ENVIRONMENT, UserSettings, default_map, effective, from_files


@pytest.fixture(autouse=True)
def files(tmp_path, monkeypatch):
    """Two empty folders for the files, and an environment that names nothing."""
    project = tmp_path / 'project'
    project.mkdir()
    monkeypatch.chdir(project)
    monkeypatch.setenv('XDG_CONFIG_HOME', str(tmp_path / 'config'))
    for variables in ENVIRONMENT.values():
        for variable in variables:
            monkeypatch.delenv(variable, raising=False)
    user = tmp_path / 'config' / 'lagent' / 'lagent.toml'
    user.parent.mkdir(parents=True)

    def write(*, ours='', theirs=''):
        user.write_text(ours)
        (project / 'lagent.toml').write_text(theirs)
        return user

    return write


def test_without_files_nothing_is_set():
    assert from_files() == {}
    assert list(effective()) == []


def test_the_project_goes_before_the_user_and_the_environment_before_both(files, monkeypatch):
    files(ours='model = "a"\ntimeout = 9\nsave = "out"', theirs='model = "b"\ntimeout = 5')
    monkeypatch.setenv('LAGENT_TIMEOUT', '7')
    found = {name: value for name, value, _ in effective()}
    assert found == {'model': 'b', 'timeout': '7', 'save': 'out'}


def test_commands_take_flags_then_the_environment_then_files(files, monkeypatch):
    seen = []

    def stop(console, files, options):
        seen.append(options)
        raise ConfigError('far enough')

    monkeypatch.setattr(cli, '_analyst', stop)
    files(
        ours='base_url = "http://h/v1"\nmax_turn = 3',
        theirs='model = "theirs"\nmax_turn = 4\nmax_new_tokens = 900',
    )

    def given(*arguments):
        CliRunner().invoke(cli.app, ['run', 'q', *arguments])
        return seen[-1]

    options = given()
    assert (options.model, options.base_url) == ('theirs', 'http://h/v1')
    assert (options.timeout, options.max_turn, options.max_new_tokens) == (60.0, 4, 900)
    monkeypatch.setenv('MODEL', 'environment')
    monkeypatch.setenv('LAGENT_MAX_TURN', '5')
    monkeypatch.setenv('LAGENT_MAX_NEW_TOKENS', '1000')
    options = given('--max-turn', '6')
    assert (options.model, options.max_turn, options.max_new_tokens) == ('environment', 6, 1000)
    assert given('--max-new-tokens', '7').max_new_tokens == 7


@pytest.mark.parametrize('line', ['base_url = "http://evil/"', 'backend = "local"', 'save = "/"'])
def test_a_project_does_not_say_where_data_and_keys_go(files, line):
    user = files(theirs=line)
    with pytest.raises(ConfigError, match=f'{line.split()[0]} may be set in {user} only'):
        from_files()
    files(ours=line)
    assert line.split()[0] in from_files()


def test_no_file_gives_up_isolation(files):
    for written in ({'ours': 'unsafe = true'}, {'theirs': 'unsafe = true'}):
        files(**{'ours': '', 'theirs': '', **written})
        with pytest.raises(ConfigError, match='with --unsafe only'):
            from_files()


def test_a_project_does_not_load_weights(files, tmp_path):
    files(theirs=f'model = "{tmp_path}"')
    with pytest.raises(ConfigError, match='model is a folder'):
        from_files()
    files(ours=f'model = "{tmp_path}"')
    assert from_files()['model'][0] == str(tmp_path)


@pytest.mark.parametrize(
    ('text', 'told'),
    [
        ('tiemout = 3', "there is no setting 'tiemout'"),
        ('timeout = "secret-value"', 'timeout: Input should be a valid number'),
        ('timeout = 0', 'timeout: Input should be greater'),
        ('language = "fr"', "language: Input should be 'en' or 'zh'"),
        ('model = ', 'can not be read'),
        (f'model = "{"x" * 70_000}"', 'larger than 65,536 bytes'),
    ],
)
def test_a_mistake_is_told_without_the_value(files, text, told):
    files(theirs=text)
    result = CliRunner().invoke(cli.app, ['run', 'q'])
    assert result.exit_code == cli.USAGE
    assert told in result.output.replace('\n', ' ').replace('  ', ' ')
    assert 'secret-value' not in result.output


@pytest.mark.parametrize(
    ('text', 'told'),
    [
        ('backend = "dokcer"', "backend: Input should be 'docker', 'bubblewrap'"),
        ('images = "all"', "images: Input should be 'auto', 'kitty'"),
    ],
)
def test_a_choice_that_there_is_not_is_told(files, text, told):
    files(ours=text)
    result = CliRunner().invoke(cli.app, ['config'])
    assert result.exit_code == cli.USAGE
    assert told in ' '.join(result.output.split())


def test_a_back_end_that_there_is_not_is_told_before_a_model_is_asked(files, monkeypatch):
    for given, variable in ((['--backend', 'dokcer'], ''), ([], 'dokcer')):
        monkeypatch.setenv('LAGENT_BACKEND', variable)
        result = CliRunner().invoke(cli.app, ['run', 'q', *given])
        assert result.exit_code == cli.USAGE
        said = ' '.join(result.output.replace('│', ' ').split())
        assert "'dokcer' is not one of 'docker', 'bubblewrap', 'auto', 'local'" in said
    assert "(env var: 'LAGENT_BACKEND')" in said


@pytest.mark.parametrize('kind', ['folder', 'loop', 'nowhere', 'pipe', 'closed'])
def test_a_file_that_can_not_be_read_is_told(files, kind, tmp_path, monkeypatch):
    path = Path('lagent.toml')
    if kind == 'folder':
        path.mkdir()
    elif kind == 'pipe':
        os.mkfifo(path)
    elif kind == 'closed':
        path.write_text('model = "a"')
        monkeypatch.setattr(Path, 'lstat', closed)
    else:
        path.symlink_to(path if kind == 'loop' else 'nowhere.toml')
    with pytest.raises(ConfigError, match='can not be read'):
        from_files()


def closed(path):
    raise PermissionError(13, 'Permission denied', str(path))


def test_passwords_in_addresses_are_not_shown(files, monkeypatch):
    monkeypatch.setenv('LAGENT_JOURNAL', 'postgresql://me:hunter2@db:5432/runs?sslkey=x')
    files(ours='base_url = "https://user:tr0ub4dor@host/v1"')
    result = CliRunner().invoke(cli.app, ['config', '--json'])
    assert result.exit_code == 0, result.output
    for shown in ('https://…@host/v1', 'postgresql://…@db:5432/runs'):
        assert shown.encode('ascii', 'backslashreplace').decode() in result.output
    for secret in ('tr0ub4dor', 'hunter2', 'sslkey'):
        assert secret not in result.output


def test_the_journal_of_a_file_is_that_of_all_commands(files):
    files(ours='journal = "/j.db"')
    defaults = default_map(['list', 'show'])
    assert defaults['run']['journal'] == '/j.db'
    assert defaults['resume'] == defaults['runs']['show'] == {'where': '/j.db'}


def test_each_setting_has_its_variable():
    assert set(ENVIRONMENT) == set(UserSettings.model_fields)
