"""Prompt texts with named variables."""

from string import Formatter
from typing import TYPE_CHECKING, Any

from lagent._extras import require

if TYPE_CHECKING:
    import jinja2


class PromptTemplate:
    """A text with variables, filled by `str.format` or by jinja2.

    Attributes:
        template: the text.
        format_type: ``'json'`` for `str.format` fields, ``'jinja'`` for a jinja2 template.
        actions_info: value of the variable ``action_info`` where the caller gives none.
        agents_info: value of the variable ``agents_info`` where the caller gives none.
    """

    def __init__(self, template: str, format_type: str = 'json') -> None:
        """Read the template.

        Args:
            template: see the class.
            format_type: see the class.

        Raises:
            ValueError: the type is unknown or the template is malformed.
            ExtraMissing: jinja2 is needed and not installed.
        """
        if format_type not in ('json', 'jinja'):
            raise ValueError(f"format_type must be 'json' or 'jinja', not {format_type!r}")
        self.template = template
        self.format_type = format_type
        self.actions_info: Any = None
        self.agents_info: Any = None
        self._formatted: str | None = None
        self._variables = frozenset(
            fields(template) if format_type == 'json' else _jinja_variables(template)
        )

    def format(self, **variables: Any) -> str:
        """Fill the template.

        Args:
            variables: value of each variable. jinja2 templates may leave some out.

        Returns:
            The text, which `str` of the template gives from then on as well.

        Raises:
            ValueError: a variable is missing, or the template has no such variable.
        """
        known = {'action_info': self.actions_info, 'agents_info': self.agents_info}
        values = {
            name: value
            for name, value in known.items()
            if value is not None and name in self._variables
        }
        values.update(variables)
        if unknown := values.keys() - self._variables:
            raise ValueError(f'the template has no variables {sorted(unknown)}')
        if self.format_type == 'jinja':
            self._formatted = _compiled(self.template).render(values)
            return self._formatted
        if missing := self._variables - values.keys():
            raise ValueError(f'the template needs values for {sorted(missing)}')
        self._formatted = self.template.format(**values)
        return self._formatted

    def __str__(self) -> str:
        return self.template if self._formatted is None else self._formatted


def fields(template: str) -> set[str]:
    """Names of the `str.format` fields of a template.

    Args:
        template: the template.

    Returns:
        The names, without attributes and indices; ``''`` for a field without a name.

    Raises:
        ValueError: the template is malformed.
    """
    names: set[str] = set()
    for _, name, spec, _ in Formatter().parse(template):
        if name is not None:
            names.add(name.partition('.')[0].partition('[')[0])
            names |= fields(spec or '')
    return names


def _compiled(template: str) -> 'jinja2.Template':
    require('jinja2', 'jinja')
    from jinja2.sandbox import SandboxedEnvironment

    return SandboxedEnvironment(keep_trailing_newline=True).from_string(template)


def _jinja_variables(template: str) -> set[str]:
    require('jinja2', 'jinja')
    from jinja2 import TemplateSyntaxError, meta
    from jinja2.sandbox import SandboxedEnvironment

    try:
        return meta.find_undeclared_variables(SandboxedEnvironment().parse(template))
    except TemplateSyntaxError as error:
        raise ValueError(f'not a jinja2 template: {error}') from error
