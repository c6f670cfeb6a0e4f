"""A pipeline with a model, a sandbox and a tool: it finds an answer in a table and posts it."""

from pathlib import Path
from typing import Any

from lagent.actions import ActionExecutor, Interpreter, tool_api
from lagent.agents import Agent, Coder
from lagent.llms import GPTAPI
from lagent.schema import AgentMessage, FunctionCall

TABLE = Path(__file__).parent / 'data' / 'sales.csv'
BOARD = Path('board.txt')


@tool_api
def post(text: str) -> str:
    """Put a text on the team's board."""
    with BOARD.open('a') as board:
        board.write(f'{text}\n')
    return 'posted'


class Report(Agent):
    """Answers a question about the sales, and posts the answer.

    Args:
        llm: the model.
    """

    def __init__(self, llm: Any) -> None:
        super().__init__(name='report')
        self.coder = Coder(llm, interpreter=Interpreter(files=TABLE))
        self.tools = ActionExecutor([post])

    def forward(self, *message: AgentMessage, **kwargs: Any) -> AgentMessage:
        answer = self.coder(*message)
        call = FunctionCall('post', {'text': str(answer.content)})
        self.tools(AgentMessage(content=call))
        return answer


def model() -> Any:
    return GPTAPI('gpt-4o-mini', temperature=0)


if __name__ == '__main__':
    print(Report(model())('Which shop of sales.csv sold more per day? Plot both.').content)
