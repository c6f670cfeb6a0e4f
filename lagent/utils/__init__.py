"""Small helpers, under InternLM's names."""

from lagent.utils.config import create_object, load_class_from_string
from lagent.utils.log import get_logger
from lagent.utils.misc import (
    GeneratorWithReturn,
    async_as_completed,
    filter_suffix,
    is_module_exist,
)

__all__ = [
    'GeneratorWithReturn',
    'async_as_completed',
    'create_object',
    'filter_suffix',
    'get_logger',
    'is_module_exist',
    'load_class_from_string',
]
