from .http_serve.app import AgentAPIServer as AgentAPIServer
from .http_serve.client import AsyncHTTPAgentClient as AsyncHTTPAgentClient
from .http_serve.client import HTTPAgentClient as HTTPAgentClient
from .http_serve.server import AsyncHTTPAgentServer as AsyncHTTPAgentServer
from .http_serve.server import HTTPAgentServer as HTTPAgentServer
from .ray_serve.actors import AgentRayActor as AgentRayActor
from .ray_serve.actors import AsyncAgentRayActor as AsyncAgentRayActor
