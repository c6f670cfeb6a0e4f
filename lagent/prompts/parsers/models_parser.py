"""What the parsers share whose formats are pydantic models."""

from typing import Any

from pydantic import BaseModel

from lagent.prompts.parsers.model_fields import is_model
from lagent.prompts.parsers.str_parser import StrParser


class ModelsParser(StrParser):
    """A parser whose template shows models; a subclass says how one is written, and reads replies.

    Attributes:
        models: the fields of the template that are models, by name; earlier ones go first.
    """

    def __init__(self, template: str = '', **models: Any) -> None:
        """Make a parser.

        Args:
            template: see `StrParser`.
            models: pydantic models; fields of other types are put into the template as they are.

        Raises:
            ValueError: the template lacks a field.
        """
        super().__init__(template, **models)
        self.models: dict[str, type[BaseModel]] = {
            name: model for name, model in models.items() if is_model(model)
        }

    def format_to_string(self, format_model: Any) -> str:
        """Write a field of the template.

        Args:
            format_model: a pydantic model, or any value.

        Returns:
            The text.
        """
        if not is_model(format_model):
            return super().format_to_string(format_model)
        return self._written(format_model)

    def _written(self, model: type[BaseModel]) -> str:
        raise NotImplementedError
