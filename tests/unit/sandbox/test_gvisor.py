import pytest

from sandbox.backends.gvisor import refusal


@pytest.mark.parametrize('info', [{}, {'Runtimes': None}, {'Runtimes': {'runc': {'path': 'runc'}}}])
def test_an_engine_without_it(info):
    assert 'does not have' in refusal(info).message


def test_an_engine_with_it():
    error = refusal({'Runtimes': {'runc': {}, 'runsc': {'path': '/usr/bin/runsc'}}})
    assert 'SO_PEERCRED' in error.message
    assert "runtime='default'" in error.hint
