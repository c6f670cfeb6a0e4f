"""InternLM's import path of its agents and their prompts."""

from lagent.agents.internlm import (
    AgentForInternLM,
    AsyncAgentForInternLM,
    AsyncMathCoder,
    MathCoder,
)
from lagent.agents.plugin_prompt import (
    API_PREFIX,
    INTERPRETER_CN,
    META_CN,
    PLUGIN_CN,
    get_plugin_prompt,
)

__all__ = [
    'API_PREFIX',
    'INTERPRETER_CN',
    'META_CN',
    'PLUGIN_CN',
    'AgentForInternLM',
    'AsyncAgentForInternLM',
    'AsyncMathCoder',
    'MathCoder',
    'get_plugin_prompt',
]
