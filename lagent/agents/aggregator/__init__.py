"""From memory to the list of messages that a model is given."""

from lagent.agents.aggregator.default_aggregator import DefaultAggregator
from lagent.agents.aggregator.native_aggregator import ToolCallAggregator
from lagent.agents.aggregator.tool_aggregator import InternLMToolAggregator
from lagent.agents.aggregator.window_aggregator import TokenWindowAggregator, is_pinned

__all__ = [
    'DefaultAggregator',
    'InternLMToolAggregator',
    'TokenWindowAggregator',
    'ToolCallAggregator',
    'is_pinned',
]
