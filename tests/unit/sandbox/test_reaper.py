"""What the reaper makes of an engine's list of containers."""

import contextlib
from types import SimpleNamespace

import pytest
from docker.errors import NotFound

from sandbox import reaper
from sandbox.owner import OWNER_LABEL

LISTED = {'ghost': 'dead', 'stuck': 'dead', 'ended': 'exited'}


class Engine:
    """One that lists a container which it does not know any more."""

    def containers(self, **_):
        return [
            {'Id': name, 'State': state, 'Labels': {OWNER_LABEL: ''}}
            for name, state in LISTED.items()
        ]

    def inspect_container(self, name):
        if name == 'ghost':
            raise NotFound('no such container')
        return {'Id': name}


def test_what_the_engine_lists_but_has_removed_is_not_there(monkeypatch: pytest.MonkeyPatch):
    client = SimpleNamespace(api=Engine())
    monkeypatch.setattr(reaper, 'engine', lambda: contextlib.nullcontext(client))
    assert {container.id for container in reaper.containers()} == {'stuck', 'ended'}
