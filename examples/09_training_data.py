"""Rollouts as training data: which tokens a model wrote, which it was told, and a reward."""

import sys

from lagent import subscribe
from lagent.actions import ActionExecutor, tool_api
from lagent.agents import Agent
from lagent.llms import Completion, ScriptedModel
from lagent.trajectory import Collector, write_samples


@tool_api
def add(a: int, b: int) -> int:
    """Add two numbers.

    Args:
        a (int): one number.
        b (int): the other one.
    """
    return a + b


def main() -> None:
    # A real engine gives ids of its own: VllmModel or HFTransformerChat, asked as below.
    first = Completion('add(2, 3)', prompt_token_ids=[1, 20, 21], token_ids=[30, 31, 2])
    second = Completion('5', prompt_token_ids=[1, 20, 21, 30, 31, 2, 40, 41], token_ids=[50, 2])
    model = Agent(ScriptedModel([first, second]))
    tools = ActionExecutor([add])

    collector = Collector()
    with subscribe(collector):
        asked = model('What is 2 + 3?', return_token_ids=True, logprobs=0)
        asked.content = {'name': 'add', 'parameters': {'a': 2, 'b': 3}}
        answer = model(f'The tool says {tools(asked).content.format_result()}.')

    (sample,) = collector.samples()
    sample.reward = float(answer.content == '5')
    for token, mask in zip(sample.token_ids, sample.loss_mask, strict=True):
        print(token, 'written' if mask else 'told')
    write_samples([sample], sys.stdout)


if __name__ == '__main__':
    main()
