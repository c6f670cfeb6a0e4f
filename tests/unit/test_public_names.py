"""The public names: adding one is a decision, taking one away breaks somebody."""

import importlib
import inspect
import types

import pytest

PUBLIC = {
    'lagent': [
        'AgentMessage',
        'Effect',
        'Event',
        'LagentError',
        'RunContext',
        'RunLimits',
        'RunUsage',
        '__version__',
        'from_config',
        'subscribe',
        'version_info',
    ],
    'lagent.actions': [
        'ActionExecutor',
        'ArxivSearch',
        'AsyncActionExecutor',
        'AsyncActionMixin',
        'AsyncArxivSearch',
        'AsyncBINGMap',
        'AsyncGoogleScholar',
        'AsyncGoogleSearch',
        'AsyncIPythonInteractive',
        'AsyncIPythonInterpreter',
        'AsyncInterpreter',
        'AsyncPPT',
        'AsyncPythonInterpreter',
        'AsyncWebBrowser',
        'BINGMap',
        'BaseAction',
        'BaseParser',
        'FinishAction',
        'GoogleScholar',
        'GoogleSearch',
        'IPythonInteractive',
        'IPythonInteractiveManager',
        'IPythonInterpreter',
        'Interpreter',
        'InvalidAction',
        'JsonParser',
        'NoAction',
        'PPT',
        'ParseError',
        'PythonInterpreter',
        'ToolMeta',
        'TupleParser',
        'WebBrowser',
        'execution_results',
        'tool_api',
    ],
    'lagent.agents': [
        'Agent',
        'AgentDict',
        'AgentForInternLM',
        'AgentList',
        'AsyncAgent',
        'AsyncAgentForInternLM',
        'AsyncCoder',
        'AsyncDataAnalyst',
        'AsyncMathCoder',
        'AsyncReAct',
        'AsyncSequential',
        'AsyncStreamingAgent',
        'AsyncStreamingSequential',
        'Coder',
        'DataAnalyst',
        'Layer',
        'MathCoder',
        'ReAct',
        'Sequential',
        'StateDict',
        'StreamingAgent',
        'StreamingSequential',
        'get_plugin_prompt',
    ],
    'lagent.agents.aggregator': [
        'DefaultAggregator',
        'InternLMToolAggregator',
        'TokenWindowAggregator',
        'ToolCallAggregator',
        'is_pinned',
    ],
    'lagent.analysis': [
        'Column',
        'FileProfile',
        'NotebookCell',
        'TableProfile',
        'read_notebook',
        'to_notebook',
        'write_notebook',
    ],
    'lagent.hooks': [
        'ActionPreprocessor',
        'Hook',
        'Hookable',
        'InternLMActionProcessor',
        'MessageLogger',
        'RemovableHandle',
    ],
    'lagent.llms': [
        'AnthropicAPI',
        'AsyncAnthropicAPI',
        'AsyncBaseAPILLM',
        'AsyncBaseLLM',
        'AsyncClaudeAPI',
        'AsyncGPTAPI',
        'AsyncHFTransformerChat',
        'AsyncLMDeployClient',
        'AsyncLMDeployPipeline',
        'AsyncLMDeployServer',
        'AsyncScriptedModel',
        'AsyncSensenovaAPI',
        'AsyncVllmModel',
        'AsyncVllmServer',
        'AuthenticationFailed',
        'BadReply',
        'BadRequest',
        'BaseAPILLM',
        'BaseLLM',
        'CHAT_META',
        'ClaudeAPI',
        'Completion',
        'ContextOverflow',
        'EmptyReply',
        'GPTAPI',
        'HFTransformer',
        'HFTransformerCasualLM',
        'HFTransformerChat',
        'INTERNLM2_META',
        'LMDeployClient',
        'LMDeployPipeline',
        'LMDeployServer',
        'ModelCallFailed',
        'ModelTimeout',
        'ModelUnavailable',
        'QuotaExhausted',
        'RateLimited',
        'RateLimits',
        'RetryPolicy',
        'ScriptEnded',
        'ScriptedModel',
        'SensenovaAPI',
        'ServerFailed',
        'Stall',
        'StreamCut',
        'ToolCall',
        'Usage',
        'VllmModel',
        'VllmServer',
    ],
    'lagent.memory': ['Memory', 'MemoryManager'],
    'lagent.prompts': [
        'CodeParser',
        'CustomFormatParser',
        'InterpreterParser',
        'JSONParser',
        'MixedToolParser',
        'ParsedCode',
        'ParsedReply',
        'PluginParser',
        'PromptTemplate',
        'Segment',
        'StrParser',
        'StreamParser',
        'ToolParser',
        'ToolStatusCode',
    ],
    'lagent.prompts.parsers': [
        'CodeParser',
        'CustomFormatParser',
        'InterpreterParser',
        'JSONParser',
        'MixedToolParser',
        'ParsedCode',
        'ParsedReply',
        'PluginParser',
        'Segment',
        'StrParser',
        'StreamParser',
        'ToolCallParser',
        'ToolParser',
        'ToolStatusCode',
    ],
    'lagent.utils': [
        'GeneratorWithReturn',
        'async_as_completed',
        'create_object',
        'filter_suffix',
        'get_logger',
        'is_module_exist',
        'load_class_from_string',
    ],
    'lagent.view': ['ModelView', 'estimate_tokens'],
    'sandbox': [
        'Allowlist',
        'AsyncFakeSandbox',
        'AsyncSandbox',
        'AsyncSandboxManager',
        'BackendUnavailable',
        'BubblewrapBackend',
        'CapacityExceeded',
        'DockerBackend',
        'ErrorInfo',
        'ExecutionEvent',
        'ExecutionResult',
        'FakeBackend',
        'FakeSandbox',
        'FileInfo',
        'FileRefused',
        'ImageMissing',
        'Outcome',
        'Output',
        'PolicyError',
        'PolicyNotEnforced',
        'Portal',
        'PortalError',
        'Sandbox',
        'SandboxClosed',
        'SandboxError',
        'SandboxLost',
        'SandboxManager',
        'SandboxPolicy',
        'StartFailed',
        'Timings',
        'Truncation',
        'blocking',
        'blocking_iterator',
        'get_portal',
    ],
}
SCHEMA = [
    'ActionReturn',
    'ActionStatusCode',
    'ActionValidCode',
    'AgentMessage',
    'AgentStatusCode',
    'FunctionCall',
    'ModelStatusCode',
]


@pytest.mark.parametrize('package', PUBLIC)
def test_the_public_names_are_these(package: str) -> None:
    module = importlib.import_module(package)
    assert sorted(module.__all__) == sorted(PUBLIC[package])


@pytest.mark.parametrize('package', PUBLIC)
def test_every_public_name_is_there(package: str) -> None:
    module = importlib.import_module(package)
    for name in PUBLIC[package]:
        assert getattr(module, name) is not None
    assert set(PUBLIC[package]) <= set(dir(module))


@pytest.mark.parametrize('package', PUBLIC)
def test_every_public_class_and_function_says_what_it_is(package: str) -> None:
    module = importlib.import_module(package)
    objects = {name: getattr(module, name) for name in PUBLIC[package]}
    silent = [
        name
        for name, value in objects.items()
        if isinstance(value, (type, types.FunctionType)) and not inspect.getdoc(value)
    ]
    assert silent == []


def test_the_names_of_the_schema() -> None:
    schema = importlib.import_module('lagent.schema')
    defined = [
        name
        for name, value in vars(schema).items()
        if isinstance(value, type) and value.__module__ == 'lagent.schema'
        if not name.startswith('_')
    ]
    assert sorted(defined) == SCHEMA
