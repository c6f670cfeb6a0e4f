from .action_preprocessor import ActionPreprocessor as ActionPreprocessor
from .action_preprocessor import InternLMActionProcessor as InternLMActionProcessor
from .hook import Hook as Hook
from .hook import Hookable as Hookable
from .hook import RemovableHandle as RemovableHandle
from .logger import MessageLogger as MessageLogger
