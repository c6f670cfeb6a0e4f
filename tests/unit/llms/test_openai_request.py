"""InternLM's parameters in the protocol's words."""

from typing import Any

import pytest

from lagent.llms.openai_request import request_body

ASK = [{'role': 'user', 'content': 'q'}]
PARAMS = {
    'max_new_tokens': 512,
    'top_p': 0.8,
    'top_k': 40,
    'temperature': 0.7,
    'repetition_penalty': 0.1,
    'stop_words': None,
    'skip_special_tokens': False,
    'session_id': 3,
}


def body(model: str = 'some/model', dialog: Any = ASK, **params: Any) -> dict[str, Any]:
    return request_body(model, dialog, {**PARAMS, **params})


def test_names_are_mapped_and_the_rest_goes_along() -> None:
    assert body(stop_words=['a', ''], seed=1, tools=[{'type': 'function'}]) == {
        'model': 'some/model',
        'messages': ASK,
        'n': 1,
        'max_tokens': 512,
        'top_p': 0.8,
        'temperature': 0.7,
        'frequency_penalty': 0.1,
        'stop': ['a'],
        'seed': 1,
        'tools': [{'type': 'function'}],
    }


@pytest.mark.parametrize('stops', [None, [], ['']])
def test_no_stop_words_means_no_stop(stops: Any) -> None:
    assert 'stop' not in body(stop_words=stops)


def test_none_leaves_a_parameter_to_the_server() -> None:
    sent = body(max_new_tokens=None, temperature=None)
    assert not {'max_tokens', 'temperature'} & sent.keys()


@pytest.mark.parametrize('model', ['o3-mini', 'gpt-5.1', 'openai/o3-mini', 'router/OpenAI/GPT-5'])
def test_reasoning_models_are_not_sampled_differently(model: str) -> None:
    sent = body(model, reasoning_effort='low')
    assert sent == {
        'model': model,
        'messages': ASK,
        'n': 1,
        'max_completion_tokens': 512,
        'reasoning_effort': 'low',
    }


@pytest.mark.parametrize('model', ['claude-sonnet-4-5', 'anthropic/claude-sonnet-4-5'])
def test_claude_takes_a_temperature_without_top_p(model: str) -> None:
    assert 'top_p' not in body(model)


def test_json_mode() -> None:
    sent = request_body('m', 'a text', PARAMS, json_mode=True)
    assert sent['response_format'] == {'type': 'json_object'}
    assert sent['messages'] == [{'role': 'user', 'content': 'a text'}]


@pytest.mark.parametrize(
    ('message', 'sent'),
    [
        ({'content': None}, {'content': ''}),
        ({'content': None, 'tool_calls': [1]}, {'content': None, 'tool_calls': [1]}),
        ({'content': {'name': 'f', 'é': 1}}, {'content': '{"name": "f", "é": 1}'}),
        (
            {'content': [{'type': 'text', 'text': 'x'}]},
            {'content': [{'type': 'text', 'text': 'x'}]},
        ),
    ],
)
def test_content_is_what_the_protocol_takes(message: Any, sent: Any) -> None:
    assert body(dialog=[{'role': 'user', **message}])['messages'] == [{'role': 'user', **sent}]


@pytest.mark.parametrize(
    ('source', 'url'),
    [
        (
            {'type': 'base64', 'media_type': 'image/png', 'data': 'QUJD'},
            'data:image/png;base64,QUJD',
        ),
        ({'type': 'url', 'url': 'https://h/x.jpg'}, 'https://h/x.jpg'),
    ],
)
def test_images_of_both_formats(source: dict[str, str], url: str) -> None:
    own = {'type': 'image_url', 'image_url': {'url': url, 'detail': 'low'}}
    text = {'type': 'text', 'text': 'look'}
    dialog = [{'role': 'user', 'content': [text, own, {'type': 'image', 'source': source}]}]
    [message] = body(dialog=dialog)['messages']
    assert message['content'] == [text, own, {'type': 'image_url', 'image_url': {'url': url}}]


def test_signed_thoughts_are_anthropics_own() -> None:
    dialog = [{'role': 'assistant', 'content': 'x', 'thinking_blocks': [{'type': 'thinking'}]}]
    assert body(dialog=dialog)['messages'] == [{'role': 'assistant', 'content': 'x'}]
