"""What an agent remembers, session by session."""

from lagent.memory.base_memory import Memory
from lagent.memory.manager import MemoryManager

__all__ = ['Memory', 'MemoryManager']
