"""The parser that leaves replies as they are, and the base class of the others."""

from typing import Any

from lagent.prompts.parsers.marks import Marks
from lagent.prompts.prompt_template import fields
from lagent.utils.reprs import repr_of


class StrParser:
    """Gives the reply as it is; base class of the other parsers.

    Attributes:
        template: text of the format instruction, with `str.format` fields.
        format_field: value of each field.
    """

    def __init__(self, template: str = '', **format_field: Any) -> None:
        """Take the template.

        Args:
            template: see the class.
            format_field: see the class; more than the template has are allowed.

        Raises:
            ValueError: the template is malformed, or a field has no value.
        """
        if missing := fields(template) - format_field.keys():
            raise ValueError(f'the template needs values for {sorted(missing)}')
        self.template = template
        self.format_field = format_field

    def __repr__(self) -> str:
        return repr_of(self)

    def format_instruction(self) -> Any:
        """What the model is told about the format.

        Returns:
            The template with its fields filled in.
        """
        values = {key: self.format_to_string(value) for key, value in self.format_field.items()}
        return self.template.format(**values)

    def format_to_string(self, format_model: Any) -> str:
        """Write one field's value for the model; override this for values of other kinds.

        Args:
            format_model: the value.

        Returns:
            Its text.
        """
        return str(format_model)

    def parse_response(self, data: str) -> Any:
        """Read a reply.

        Args:
            data: the reply.

        Returns:
            The reply as it is.
        """
        return data

    def format_response(self, parsed: Any) -> str:
        """Write what was parsed as the model would have written it.

        Args:
            parsed: what `parse_response` gave.

        Returns:
            The reply.

        Raises:
            NotImplementedError: this parser cannot.
        """
        raise NotImplementedError(f'{type(self).__name__} cannot write replies')

    def stream_marks(self) -> Marks:
        """What a stream of replies is watched for; see `StreamParser`.

        Returns:
            The marks around code and reasoning; none for a parser of other things.
        """
        return Marks()
