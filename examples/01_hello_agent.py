"""An agent, its memory, and its state as JSON. Offline: the model's replies are written here."""

import json

from lagent.agents import Agent
from lagent.llms import ScriptedModel


def main() -> None:
    llm = ScriptedModel(['Hello Ada! What can I do for you?', 'You told me: your name is Ada.'])
    agent = Agent(llm, template='You are a friendly assistant.')

    print(agent('Hi, my name is Ada.').content)
    answer = agent('What is my name?')
    print(answer.content)

    # The model saw the system instruction and the whole conversation.
    for message in llm.calls[-1].messages:
        print(f'  {message["role"]:>9}: {message["content"]}')

    # Sessions are separate, and each can be saved and loaded.
    saved = json.dumps(agent.state_dict())
    other = Agent(llm)
    other.load_state_dict(json.loads(saved), session_id='ada')
    print(len(other.memory.get_memory('ada')), 'messages restored')


if __name__ == '__main__':
    main()
