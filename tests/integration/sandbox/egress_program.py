"""An egress proxy with made-up names: argv[1] is JSON, from a name to its addresses, call by call.

Only 127.0.0.1 may be connected to. Everything else is as in the real one.
"""

import json
import sys

from sandbox.egress.program import main

names = json.loads(sys.argv[1])


async def resolve(host: str, port: int) -> list[str]:
    answers = names.get(host, [[]])
    return answers.pop(0) if len(answers) > 1 else answers[0]


main(resolve=resolve, permits=lambda text: text == '127.0.0.1')
