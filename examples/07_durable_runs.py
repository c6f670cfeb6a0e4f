"""A run that survives: its process is killed after the second mail, and no mail is sent twice.

Every effect is recorded before and after it is done. The second process gives back what is recorded
and goes on behind it; the third has nothing left to do. `lagent runs show party` shows the run.
"""

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from lagent.actions import ActionExecutor, tool_api
from lagent.agents import Agent
from lagent.llms import ScriptedModel
from lagent.schema import AgentMessage, FunctionCall

OUTBOX = Path('outbox.txt')


@tool_api
def mail(to: str, text: str) -> str:
    """Send a mail."""
    with OUTBOX.open('a') as file:
        file.write(f'{to}: {text}\n')
    return f'sent to {to}'


class Inviter(Agent):
    """Has the model write to each guest in turn."""

    def __init__(self) -> None:
        super().__init__(ScriptedModel(lambda messages: f'Dear {messages[-1]["content"]}, come!'))
        self.tools = ActionExecutor([mail])

    def forward(self, *message: AgentMessage, **kwargs: object) -> str:
        for guest in str(message[0].content).split():
            text = self.llm.chat([{'role': 'user', 'content': guest}])
            call = FunctionCall('mail', {'to': guest, 'text': str(text)})
            self.tools(AgentMessage(content=call))
            if guest == 'Ben' and '--crash' in sys.argv:
                os.kill(os.getpid(), signal.SIGKILL)
        return OUTBOX.read_text()


def main() -> None:
    if '--attempt' in sys.argv:
        print(Inviter().run('Ada Ben Cleo', run_id='party', journal='runs.db').content, end='')
        return
    with tempfile.TemporaryDirectory() as folder:
        for options in (['--crash'], [], []):
            command = [sys.executable, Path(__file__).resolve(), '--attempt', *options]
            code = subprocess.run(command, cwd=folder, check=False).returncode
            mails = Path(folder, OUTBOX).read_text().splitlines()
            print(f'--- exit code {code}, mails sent: {len(mails)}')


if __name__ == '__main__':
    main()
