"""Meta templates: how roles are written, as data."""

from typing import Any

MetaTemplate = list[dict[str, Any]]

_PLUGINS = {'interpreter': '<|interpreter|>', 'plugin': '<|plugin|>'}


def _chatml(role: str, names: dict[str, str] | None = None) -> dict[str, Any]:
    begin: dict[str, Any] = {
        'with_name': f'<|im_start|>{role} name={{name}}\n',
        'without_name': f'<|im_start|>{role}\n',
    }
    if names is not None:
        begin['name'] = names
    return {'role': role, 'begin': begin, 'end': '<|im_end|>\n'}


INTERNLM2_META: MetaTemplate = [
    _chatml('system', _PLUGINS),
    _chatml('user'),
    _chatml('assistant', _PLUGINS),
    _chatml('environment', _PLUGINS),
]

# Roles that every chat model knows. What a tool said reaches a model as the user's words and
# never as the system's, which models are trained to obey.
CHAT_META: MetaTemplate = [
    {'role': 'system', 'api_role': 'system'},
    {'role': 'developer', 'api_role': 'developer'},
    {'role': 'user', 'api_role': 'user'},
    {'role': 'assistant', 'api_role': 'assistant'},
    {'role': 'environment', 'api_role': 'user'},
    {'role': 'tool', 'api_role': 'tool'},
]
