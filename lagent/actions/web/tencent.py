"""Tencent Cloud's web search, and the signature that its API asks for."""

import hashlib
import hmac
import json
import time
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

from lagent.actions.web.answers import pick, words
from lagent.actions.web.client import HttpClient
from lagent.actions.web.errors import BadReply
from lagent.actions.web.search import BLACK_LIST, BaseSearch, Found, Proxy
from lagent.actions.web.tool import required_key

_ALGORITHM = 'TC3-HMAC-SHA256'
_CONTENT_TYPE = 'application/json; charset=utf-8'
_SIGNED = 'content-type;host;x-tc-action'


class TencentSearch(BaseSearch):
    """Tencent Cloud's web search.

    Args:
        secret_id: the account's secret id.
        secret_key: the key that belongs to it.
        api_key: a temporary token, if the credentials are temporary ones.
        action: name of the interface.
        version: version of the API.
        service: name of the product.
        host: the API's host.
        topk: results that are given.
        tsn: age of the results: 1 a day, 2 a week, 3 a month, 4 a year, 5 six months, 6 three
            years.
        insite: a site to search in.
        category: kind of results, such as ``'news'`` or ``'baike'``.
        vrid: kinds of cards, with commas between them.
        black_list: results with one of these texts in their URL are left out.
        timeout: seconds for one request.
        proxy: a proxy's URL, or a dict from ``'https'`` or ``'http'`` to one.

    Raises:
        ValueError: `secret_id` or `secret_key` is missing.

    Attributes:
        base_url: where requests go.
    """

    def __init__(
        self,
        secret_id: str | None = None,
        secret_key: str | None = None,
        api_key: str = '',
        action: str = 'SearchCommon',
        version: str = '2020-12-29',
        service: str = 'tms',
        host: str = 'tms.tencentcloudapi.com',
        topk: int = 3,
        tsn: int | None = None,
        insite: str | None = None,
        category: str | None = None,
        vrid: str | None = None,
        black_list: Sequence[str] | None = BLACK_LIST,
        *,
        timeout: float = 30.0,
        proxy: Proxy = None,
    ) -> None:
        super().__init__(topk, black_list, timeout=timeout, proxy=proxy)
        self.secret_id = required_key(secret_id, name='secret_id')
        self.secret_key = required_key(secret_key, name='secret_key')
        self.api_key, self.action, self.version, self.service = api_key, action, version, service
        self.host = host.strip('/')
        self.base_url = f'https://{self.host}'
        self.params = {'Tsn': tsn, 'Insite': insite, 'Category': category, 'Vrid': vrid}

    async def find(self, query: str, client: HttpClient) -> Iterable[Found]:
        """See `BaseSearch.find`."""
        asked = {'Query': query} | {key: value for key, value in self.params.items() if value}
        body = json.dumps(asked).encode()
        reply = await client.post(self.base_url, body, self._headers(body, int(time.time())))
        answer = reply.json().get('Response')
        failed = pick(answer, 'Error')
        if failed:
            code, said = words(pick(failed, 'Code')), words(pick(failed, 'Message'), 300)
            raise BadReply(f'Tencent Cloud refused the request: {code}: {said}')
        return self._results(pick(answer, 'Pages'))

    def _results(self, pages: Any) -> Iterator[Found]:
        for page in pages if isinstance(pages, list) else ():
            # A page is a JSON document as a text, in newer interfaces without anything around it.
            try:
                shown = json.loads(page if isinstance(page, str) else page['Display'])
            except (ValueError, TypeError, KeyError, RecursionError):
                continue
            url = words(pick(shown, 'url'))
            summaries = (pick(shown, key) for key in ('content', 'passage', 'abstract_info'))
            if url:
                yield Found(url, next(filter(None, summaries), ''), pick(shown, 'title'))

    def _headers(self, body: bytes, timestamp: int) -> dict[str, str]:
        headers = {
            'Authorization': self._authorization(body, timestamp),
            'Content-Type': _CONTENT_TYPE,
            'Host': self.host,
            'X-TC-Action': self.action,
            'X-TC-Timestamp': str(timestamp),
            'X-TC-Version': self.version,
        }
        return headers | ({'X-TC-Token': self.api_key} if self.api_key else {})

    def _authorization(self, body: bytes, timestamp: int) -> str:
        date = datetime.fromtimestamp(timestamp, UTC).strftime('%Y-%m-%d')
        scope = f'{date}/{self.service}/tc3_request'
        headers = (
            f'content-type:{_CONTENT_TYPE}',
            f'host:{self.host}',
            f'x-tc-action:{self.action.lower()}',
        )
        request = '\n'.join(['POST', '/', '', *headers, '', _SIGNED, _digest(body)])
        to_sign = '\n'.join([_ALGORITHM, str(timestamp), scope, _digest(request.encode())])
        key = f'TC3{self.secret_key}'.encode()
        for part in (date, self.service, 'tc3_request', to_sign):
            key = hmac.digest(key, part.encode(), 'sha256')
        credential = f'Credential={self.secret_id}/{scope}'
        return f'{_ALGORITHM} {credential}, SignedHeaders={_SIGNED}, Signature={key.hex()}'


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
