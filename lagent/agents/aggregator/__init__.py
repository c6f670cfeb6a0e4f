"""From memory to the list of messages that a model is given."""

from lagent.agents.aggregator.default_aggregator import DefaultAggregator
from lagent.agents.aggregator.tool_aggregator import InternLMToolAggregator

__all__ = ['DefaultAggregator', 'InternLMToolAggregator']
