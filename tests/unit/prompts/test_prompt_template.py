import subprocess
import sys

import pytest

from lagent.prompts import PromptTemplate


def test_format():
    assert PromptTemplate('Hi {name}, {{so}}').format(name='Ann') == 'Hi Ann, {so}'


def test_jinja():
    template = PromptTemplate('{% for x in xs %}{{ x }};{% endfor %}{{ gone }}\n', 'jinja')
    assert template.format(xs=[1, 2]) == '1;2;\n'


@pytest.mark.parametrize('kind', ['json', 'jinja'])
def test_an_unknown_variable(kind):
    with pytest.raises(ValueError, match='extra'):
        PromptTemplate('{name}' if kind == 'json' else '{{ name }}', kind).format(name=1, extra=2)


def test_a_missing_variable():
    with pytest.raises(ValueError, match='name'):
        PromptTemplate('{name}').format()


@pytest.mark.parametrize(
    ('text', 'kind'), [('{% if %}', 'jinja'), ('{{ a', 'jinja'), ('{a', 'json'), ('a', 'yaml')]
)
def test_bad_templates(text, kind):
    with pytest.raises(ValueError):
        PromptTemplate(text, kind)


def test_the_information_about_actions_and_agents():
    template = PromptTemplate('{action_info}|{agents_info}|{x}')
    template.actions_info, template.agents_info = 'A', 'B'
    assert template.format(x=1) == 'A|B|1'
    assert template.format(x=1, action_info='C') == 'C|B|1'
    other = PromptTemplate('{x}')
    other.actions_info = 'A'
    assert other.format(x=2) == '2'


def test_as_text():
    template = PromptTemplate('{x}')
    assert str(template) == '{x}'
    template.format(x=1)
    assert str(template) == '1'


def test_jinja_templates_are_sandboxed():
    from jinja2.exceptions import SecurityError

    with pytest.raises(SecurityError):
        PromptTemplate('{{ x.__class__.__mro__ }}', 'jinja').format(x=1)


def test_importing_the_parsers_is_light():
    code = (
        'import sys, lagent.prompts, lagent.prompts.parsers as p; p.CodeParser, p.ToolParser;'
        "print(sorted({'jinja2', 'openai', 'docker', 'zmq', 'torch'} & set(sys.modules)))"
    )
    shown = subprocess.run([sys.executable, '-c', code], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == '[]'
