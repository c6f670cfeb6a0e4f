from .actors import AgentRayActor as AgentRayActor
from .actors import AsyncAgentRayActor as AsyncAgentRayActor
