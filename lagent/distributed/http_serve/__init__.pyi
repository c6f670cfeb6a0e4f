from .app import AgentAPIServer as AgentAPIServer
from .client import AsyncHTTPAgentClient as AsyncHTTPAgentClient
from .client import HTTPAgentClient as HTTPAgentClient
from .server import AsyncHTTPAgentServer as AsyncHTTPAgentServer
from .server import HTTPAgentServer as HTTPAgentServer
