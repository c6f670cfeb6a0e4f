from .model_view import ModelView as ModelView
from .tokens import estimate_tokens as estimate_tokens
