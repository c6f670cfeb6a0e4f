"""The two forms of a tool are one: same APIs, signatures and descriptions, one implementation."""

import inspect

import pytest

from lagent import actions

NAMES = ('ArxivSearch', 'BINGMap', 'GoogleSearch', 'GoogleScholar', 'PPT', 'WebBrowser')


@pytest.mark.parametrize('name', NAMES)
def test_both_forms_agree(name):
    plain, awaited = getattr(actions, name), getattr(actions, f'Async{name}')
    assert inspect.signature(plain) == inspect.signature(awaited)
    apis = plain.__tool_description__.get('api_list') or [{'name': 'run'}]
    assert apis == (awaited.__tool_description__.get('api_list') or [{'name': 'run'}])
    for api in apis:
        one, other = getattr(plain, api['name']), getattr(awaited, api['name'])
        assert inspect.signature(one) == inspect.signature(other)
        assert not inspect.iscoroutinefunction(one)
        assert inspect.iscoroutinefunction(other)


@pytest.mark.parametrize('name', NAMES)
def test_models_are_told_the_same(name):
    plain, awaited = (
        getattr(actions, one).__tool_description__['description'] for one in (name, f'Async{name}')
    )
    assert plain == awaited
    assert 'awaited' not in plain
