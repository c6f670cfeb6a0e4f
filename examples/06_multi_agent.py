"""Agents made of agents: children are attributes, and the state of the tree is one dict."""

from lagent.agents import Agent, Sequential
from lagent.hooks import MessageLogger
from lagent.llms import ScriptedModel
from lagent.schema import AgentMessage


class Reviewed(Agent):
    """A writer whose draft goes through a critic and back, at most `rounds` times."""

    def __init__(self, writer: Agent, critic: Agent, rounds: int = 3) -> None:
        super().__init__()
        self.writer, self.critic, self.rounds = writer, critic, rounds

    def forward(self, *message: AgentMessage, session_id: object = 0) -> AgentMessage:
        draft = self.writer(*message, session_id=session_id)
        for _ in range(self.rounds):
            review = self.critic(draft, session_id=session_id)
            if review.content == 'Good.':
                break
            draft = self.writer(review, session_id=session_id)
        return draft


def main() -> None:
    writer = Agent(ScriptedModel(['A pod of whale.', 'A pod of whales.']), name='writer')
    critic = Agent(ScriptedModel(['Plural!', 'Good.']), name='critic', hooks=[MessageLogger()])
    shout = Agent(ScriptedModel(lambda messages: messages[-1]['content'].upper()), name='shout')

    team = Sequential(Reviewed(writer, critic), shout)
    print(team('Name a group of whales.', session_id='demo').content)
    print(team)
    print({key: len(messages) for key, messages in team.state_dict('demo').items()})


if __name__ == '__main__':
    main()
