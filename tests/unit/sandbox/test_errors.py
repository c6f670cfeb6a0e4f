import pickle

import pytest

from sandbox import errors


@pytest.mark.parametrize('name', [n for n in vars(errors) if n[0].isupper()])
def test_every_error_is_in_the_tree_and_in_its_picture(name):
    kind = getattr(errors, name)
    assert issubclass(kind, errors.SandboxError)
    assert name in errors.__doc__


def test_an_error_says_what_happened_and_what_to_do():
    error = errors.FileRefused('no', hint='do this')
    assert (error.message, error.hint, str(error)) == ('no', 'do this', 'no\ndo this')
    assert str(errors.FileRefused('no')) == 'no'
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), again.message, again.hint) == (errors.FileRefused, 'no', 'do this')


def test_errors_that_have_a_second_home():
    assert issubclass(errors.PolicyError, ValueError)
    assert issubclass(errors.PortalError, RuntimeError)
