"""The addresses of the page: what is left on the disk, and odd queries."""

import httpx
import pytest

from lagent.ui.app import Pages
from lagent.ui.security import COOKIE, HEADER, Keys
from lagent.ui.sessions import Sessions


@pytest.fixture
def sessions():
    sessions = Sessions(None)
    yield sessions
    for session in sessions.all():
        session._worker.shutdown()


@pytest.fixture
def browser(sessions):
    """A client that is let in, and sees what the server raises as a status."""
    keys = Keys()
    transport = httpx.ASGITransport(
        Pages(sessions, keys, 'scripted').app('127.0.0.1'), raise_app_exceptions=False
    )
    return httpx.AsyncClient(
        transport=transport,
        base_url=f'http://127.0.0.1{keys.base}',
        cookies={COOKIE: keys.cookie},
        headers={HEADER: '1'},
    )


@pytest.mark.parametrize(
    ('given', 'status'),
    [('bytes=0-1', 206), ('bytes=99-', 416), ('bytes=x', 400), ('bytes=0-1,3-4', 206), ('', 200)],
)
async def test_no_copy_of_a_download_is_left(
    sessions, browser, monkeypatch, tmp_path, given, status
):
    def download(name, folder):
        path = folder / name
        path.write_text('abcdef')
        return path

    monkeypatch.setattr('tempfile.tempdir', str(tmp_path))
    monkeypatch.setattr(sessions.all()[0], 'download', download)
    headers = {'range': given} if given else {}
    async with browser:
        answer = await browser.get('/s/1/files?name=a.csv', headers=headers)
    assert answer.status_code == status
    assert list(tmp_path.iterdir()) == []


async def test_numbers_of_any_length_are_no_failure(browser):
    async with browser:
        assert (await browser.get(f'/?s={"1" * 5_000}&s=1')).status_code == 200
        assert (await browser.get(f'/s/{"1" * 5_000}/notebook')).status_code == 404
        assert (await browser.get('/s/x/notebook')).status_code == 404
