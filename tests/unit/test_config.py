"""Agents as data: what is built, what is refused, and where an error is said to be."""

import json
import os
import textwrap

import pytest

import lagent
from lagent.actions import ActionExecutor
from lagent.agents import Agent
from lagent.distributed.config import read_config
from lagent.errors import ConfigError, LagentError
from lagent.limits import RunLimits
from lagent.llms import ScriptedModel
from lagent.prompts.parsers import ToolParser
from lagent.utils import create_object

AGENT = """\
    type: lagent.agents.Agent
    name: ada
    template:
      - {role: system, content: {type: text, text: brief}}
    memory: {type: lagent.memory.Memory, recent_n: 4}
    limits:
      type: lagent.limits.RunLimits
      seconds: 60
    llm:
      type: lagent.llms.ScriptedModel
      replies: [hello, you]
    hooks:
      - type: lagent.hooks.Hook
    aggregator:
      type: lagent.agents.aggregator.TokenWindowAggregator
      budget: 1000
"""


@pytest.fixture
def write(tmp_path):
    def write(text):
        path = tmp_path / 'agent.yaml'
        path.write_text(textwrap.dedent(text), encoding='utf-8')
        return path

    return write


def test_a_whole_agent(write):
    agent = lagent.from_config(write(AGENT))
    assert isinstance(agent, Agent)
    assert agent.limits == RunLimits(seconds=60)
    assert agent.template[0]['content'] == {'type': 'text', 'text': 'brief'}
    assert [agent('q', session_id=1).content, agent('q').content] == ['hello', 'you']
    assert len(agent.memory.get_memory(1)) == len(agent.memory.get_memory(0)) == 2


def test_a_dict_with_classes_of_ones_own_code():
    class Mine(Agent):
        pass

    data = {'type': Mine, 'llm': {'type': 'lagent.llms.ScriptedModel', 'replies': ['x']}}
    assert lagent.from_config(data)('q').content == 'x'
    assert data['llm']['replies'] == ['x']


def test_an_anchor_is_one_object(write):
    agent = lagent.from_config(
        write(
            """\
            type: lagent.agents.Coder
            interpreter: {type: lagent.memory.Memory}
            llm: &model {type: lagent.llms.ScriptedModel, replies: [a]}
            description: *model
            """
        )
    )
    assert isinstance(agent.agent.llm, ScriptedModel)
    assert agent.description is agent.agent.llm


@pytest.mark.parametrize(
    'name',
    [
        'os.system',
        'subprocess.Popen',
        'builtins.eval',
        'lagents.Agent',
        'lagent',
        # not classes, or only imported there
        'lagent.utils.load_class_from_string',
        'lagent.utils.create_object',
        'lagent.utils.log.RotatingFileHandler',
        'lagent.config.Path',
        'lagent.agents.base.copy',
        'lagent._extras.require',
    ],
)
def test_other_code_is_refused(name):
    data = {'type': 'lagent.agents.Agent', 'llm': {'type': name, 'path': '/'}}
    if name == 'lagent':  # no dotted path: data, which the agent's constructor refuses
        with pytest.raises(ConfigError, match='top level'):
            lagent.from_config(data)
        return
    with pytest.raises(ConfigError, match=r'field llm\.type') as caught:
        lagent.from_config(data)
    assert name in str(caught.value)


class Opening(Agent):
    """Looks up a class of its own while it is built."""

    def __init__(self, tool, **kwargs):
        super().__init__(**kwargs)
        self.tool = create_object({'type': tool})


PARSER = {'type': 'lagent.prompts.parsers.ToolParser', 'tool_type': 't', 'validate': 'os.system'}
PAIRS = [['type', 'os.system'], ['command', 'touch {}']]


@pytest.mark.parametrize(
    'data',
    [
        {'type': 'lagent.agents.Agent', 'output_format': PARSER},
        {'type': 'lagent.agents.Agent', 'output_format': {**PARSER, 'type': ToolParser}},
        {'type': 'lagent.prompts.parsers.MixedToolParser', 'parsers': [PARSER]},
        {**PARSER, 'type': 'lagent.prompts.parsers.PluginParser'},
        {**PARSER, 'type': 'lagent.prompts.parsers.InterpreterParser'},
        {'type': 'lagent.agents.ReAct', 'llm': None, 'actions': [], 'output_format': PARSER},
        {'type': 'lagent.actions.ActionExecutor', 'actions': [{'type': 'os.system'}]},
        {'type': 'lagent.actions.ActionExecutor', 'actions': [], 'hooks': [{'type': 'os.system'}]},
        {'type': 'lagent.memory.MemoryManager', 'cfg': {'type': 'os.system'}},
        {'type': Opening, 'tool': 'os.system'},
        # No mapping, and yet a dict to whoever makes one of it.
        {'type': 'lagent.distributed.http_serve.app.AgentAPIServer', 'config': PAIRS},
    ],
    ids=lambda data: f'{data["type"]}',
)
def test_no_dotted_path_gets_past_the_list(data, monkeypatch):
    monkeypatch.setattr(os, 'system', lambda *_: pytest.fail('it was run'))
    with pytest.raises(ConfigError) as caught:
        lagent.from_config(data)
    if 'config' not in data:
        assert "'os.system' is not allowed" in str(caught.value)


def test_a_server_process_takes_no_pairs_either():
    with pytest.raises(ConfigError, match='is a mapping'):
        read_config(json.loads(json.dumps(PAIRS)))


def test_a_function_that_is_allowed_checks_calls():
    data = {**PARSER, 'validate': 'json.loads'}
    with pytest.raises(ConfigError, match=r"'json\.loads' is not allowed"):
        lagent.from_config(data)
    with pytest.raises(ConfigError, match='by its full name'):
        lagent.from_config(data, allow=['json.'])
    parser = lagent.from_config(data, allow=['json.loads'])
    assert parser.parse_response('<tool>\n[1]</tool>\n')['action'] == [1]
    # What is written in code is not asked about, before or after.
    del data['type']
    assert ToolParser(**data).validate is json.loads
    assert lagent.from_config({'type': Opening, 'tool': 'lagent.memory.Memory'}).tool


def test_what_is_allowed_is_built():
    data = {'type': 'collections.OrderedDict', 'a': 1}
    for allow in (['collections.'], ('collections.OrderedDict',), 'collections.'):
        assert lagent.from_config(data, allow=allow) == {'a': 1}
    # A function has to be named in full, and is handed on as it is.
    data = {'type': 'lagent.agents.Agent', 'llm': {'type': 'os.path.join'}}
    with pytest.raises(ConfigError, match='by its full name'):
        lagent.from_config(data, allow=['os.path.'])
    assert lagent.from_config(data, allow=['os.path.join']).llm is os.path.join


def broken(old, new):
    assert old in AGENT
    return AGENT.replace(old, new)


@pytest.mark.parametrize(
    ('text', 'line', 'words'),
    [
        (broken('budget: 1000', 'budgets: 1'), 16, ['aggregator.budgets', 'no such argument']),
        (broken('seconds: 60', 'seconds: -1'), 6, ['field limits', 'seconds must be positive']),
        (broken('lagent.hooks.Hook', 'os.system'), 13, ['hooks[0].type', "'os.system'", 'allow']),
        (broken('lagent.llms.Scr', 'lagent.llms.Skr'), 10, ['llm.type', 'does not exist']),
        (broken('lagent.llms.Scr', 'lagent.llm.Scr'), 10, ['llm.type', 'does not exist']),
        (broken('name: ada', 'nmae: ada'), 2, ['field nmae', 'no such argument']),
        (broken('name: ada', 'template: x'), 3, ["'template' is there twice"]),
        (broken('name: ada', 'name: [ada'), 3, ['not YAML']),
        (broken('name: ada', 'name: !!python/name:os.system x'), 2, ['not YAML']),
        (broken('type: lagent.agents.Agent', 'type: Agent'), 1, ['field type', 'no dotted path']),
        (broken('name: ada', '? [a, b]\n    : ada'), 2, ['top level: the name of a field must']),
        (broken('seconds: 60', '? {a: b}\n      : 1'), 8, ['limits: the name of a field must']),
        ('- a', 1, ['a mapping with a "type"']),
        ('', 1, ['a mapping with a "type"']),
    ],
)
def test_an_error_says_where_it_is(write, text, line, words):
    path = write(text)
    with pytest.raises(ConfigError) as caught:
        lagent.from_config(path)
    assert str(caught.value).startswith(f'{path}:{line}: ')
    assert all(word in str(caught.value) for word in words)


def test_a_value_that_yaml_can_not_make_is_told(write):
    path = write(broken('name: ada', 'name: 2001-99-99'))
    with pytest.raises(ConfigError) as caught:
        lagent.from_config(path)
    assert str(caught.value).startswith(f'{path}: this is not YAML: month must be in 1..12')


def test_what_other_libraries_do_to_the_loader_changes_nothing(write, monkeypatch):
    import yaml

    table = yaml.SafeLoader.yaml_constructors
    monkeypatch.setitem(table, 'tag:yaml.org,2002:timestamp', table['tag:yaml.org,2002:str'])
    test_a_value_that_yaml_can_not_make_is_told(write)


def test_what_does_not_end_is_refused(write):
    with pytest.raises(ConfigError, match='nested more than'):
        lagent.from_config(write('type: lagent.agents.Agent\ntemplate: &a [*a]\n'))
    bombs = '\n'.join(f'b{n}: &b{n} [{", ".join([f"*b{n - 1}"] * 9)}]' for n in range(1, 12))
    text = f'type: lagent.agents.Agent\nb0: &b0 [x]\n{bombs}\n'
    with pytest.raises(ConfigError, match='no such argument'):
        lagent.from_config(write(text))


def test_a_file_that_is_missing(tmp_path):
    with pytest.raises(FileNotFoundError):
        lagent.from_config(tmp_path / 'none.yaml')


def test_without_the_library(write, monkeypatch):
    monkeypatch.setitem(__import__('sys').modules, 'yaml', None)
    with pytest.raises(LagentError, match=r'lagent-sandbox\[yaml\]'):
        lagent.from_config(write(AGENT))


def test_tools_and_chains(write):
    path = write(
        """\
        type: lagent.actions.ActionExecutor
        actions:
          - type: lagent.actions.FinishAction
        """
    )
    assert isinstance(lagent.from_config(path), ActionExecutor)
    assert lagent.from_config(path).keys() == ['FinishAction']
