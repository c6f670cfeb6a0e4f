"""Which effects need somebody's yes before they are done."""

from collections.abc import Callable, Collection
from dataclasses import dataclass

from lagent.actions.json_schema import function_name
from lagent.context import RunContext
from lagent.effects import Effect


@dataclass(frozen=True, kw_only=True, slots=True)
class Approval:
    """A policy; any function of an effect and its run that gives a reason or None is one too.

    Attributes:
        kernel: all code that is run, by interpreters and by tools.
        tools: the tools of these names (``Tool`` for all of its APIs, ``Tool.api``, or ``Tool-api``
            as providers write it), however a model writes them; True for all tools.
        network: what can reach other machines, as far as tools and interpreters declare it.
        tokens_above: model calls of a run that has used more tokens already.
        cost_above: model calls of a run that has cost more already, by the `RunLimits.prices` that
            it has; and those of models that have no price there.
        when: says of any other effect whether it needs a yes.
    """

    kernel: bool = False
    tools: bool | Collection[str] = ()
    network: bool = False
    tokens_above: int | None = None
    cost_above: float | None = None
    when: Callable[[Effect], bool] | None = None

    def __call__(self, effect: Effect, context: RunContext) -> str | None:
        """Why an effect needs a yes.

        Args:
            effect: what is going to be done.
            context: the run.

        Returns:
            The reason in a few words; None if it needs none.
        """
        if self.kernel and (effect.kind == 'kernel' or effect.runs_code):
            return 'all code needs a yes'
        if effect.kind == 'tool' and self._names(effect.name):
            return 'this tool needs a yes'
        if effect.network and self.network:
            return 'it can reach the network'
        *_, whole = context.usage.charged()
        above = self.tokens_above
        if effect.kind == 'model' and above is not None and whole.tokens > above:
            return f'{whole.tokens:,} tokens are used, more than {above:,}'
        if effect.kind == 'model' and self.cost_above is not None:
            if context.usage.price_of(effect.name) is None:
                return 'what it costs is not known'
            if whole.cost > self.cost_above:
                return f'{whole.cost:,.4g} was spent, more than {self.cost_above:,.4g}'
        if self.when is not None and self.when(effect):
            return 'the policy asks for a yes'
        return None

    def _names(self, name: str) -> bool:
        if isinstance(self.tools, bool):
            return self.tools
        named = [self.tools] if isinstance(self.tools, str) else self.tools
        tool, _, api = name.partition('.')
        written = {function_name(each) for each in (name, tool, f'{tool}.{api or "run"}')}
        return not written.isdisjoint(map(function_name, named))
