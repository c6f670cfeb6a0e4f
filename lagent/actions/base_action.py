"""The tools that an agent calls."""

import inspect
from abc import ABCMeta
from collections.abc import Callable, Collection
from copy import deepcopy
from functools import partial
from typing import Any, ClassVar, Literal, TypeVar, overload

from lagent.actions.description import SESSION_PARAMETER, describe, summary
from lagent.actions.hooked import settle
from lagent.actions.json_schema import parameters_schema, typed_arguments
from lagent.actions.parser import BaseParser, JsonParser, ParseError
from lagent.context import DEFAULT_SESSION, current_context
from lagent.errors import CONTROL_ERRORS
from lagent.flow import Flow, arun, call, run
from lagent.schema import ActionReturn, ActionStatusCode

Function = TypeVar('Function', bound=Callable[..., Any])


@overload
def tool_api(func: Function) -> Function: ...
@overload
def tool_api(
    func: None = None,
    *,
    explode_return: bool = ...,
    returns_named_value: bool = ...,
    include_arguments: Collection[str] | None = ...,
    exclude_arguments: Collection[str] | None = ...,
    idempotent: bool = ...,
    network: bool = ...,
    **kwargs: Any,
) -> Callable[[Function], Function]: ...
def tool_api(
    func: Function | None = None,
    *,
    explode_return: bool = False,
    returns_named_value: bool = False,
    include_arguments: Collection[str] | None = None,
    exclude_arguments: Collection[str] | None = None,
    idempotent: bool = False,
    network: bool = False,
    **kwargs: Any,  # noqa: ARG001
) -> Function | Callable[[Function], Function]:
    """Describe a function or method for models, in its attribute ``api_description``.

    Type hints beat the types in a Google-style docstring, the text of an `Annotated` hint beats
    the text of the docstring. The function itself stays as it is.

    ::

        @tool_api
        def add(a: Annotated[int, 'first addend'], b: Annotated[int, 'second addend'] = 1):
            '''Add two numbers.'''
            return a + b

    Args:
        func: the function to describe.
        explode_return: describe the members of a returned dict or tuple as ``return_data``. They
            are the bullets below the first line of the docstring's ``Returns:``.
        returns_named_value: describe the entries ``name (type): text`` of ``Returns:`` as
            ``return_data``.
        include_arguments: the only parameters that the model is told about.
        exclude_arguments: parameters that the model isn't told about.
        idempotent: whether a call may be made again when nobody knows how it ended, such as one
            that only reads; asked when a run resumes after a crash.
        network: whether it reaches other machines; asked by approval policies.
        kwargs: options of InternLM's docstring parser; accepted and not needed.

    Returns:
        The function, or a decorator when it is not given.
    """
    if func is None:
        return partial(
            tool_api,
            explode_return=explode_return,
            returns_named_value=returns_named_value,
            include_arguments=include_arguments,
            exclude_arguments=exclude_arguments,
            idempotent=idempotent,
            network=network,
        )
    traits = {'idempotent': idempotent, 'network': network}
    func.api_traits = {name for name in traits if traits[name]}  # type: ignore[attr-defined]
    func.api_description = describe(  # type: ignore[attr-defined]
        func,
        explode_return=explode_return,
        returns_named_value=returns_named_value,
        include_arguments=include_arguments,
        exclude_arguments=exclude_arguments,
    )
    return func


class ToolMeta(ABCMeta):
    """Reads a tool's description from its class and the classes it derives from."""

    def __init__(cls, name: str, bases: tuple[type, ...], attrs: dict[str, Any]) -> None:
        super().__init__(name, bases, attrs)
        is_own_toolkit = any(_is_api(value) for key, value in attrs.items() if key != 'run')
        if is_own_toolkit and _is_api(attrs.get('run')):
            raise KeyError(f'{name}: a tool has either `run` or other APIs, not both')
        if is_own_toolkit or callable(attrs.get('run')):
            cls._is_toolkit = is_own_toolkit
        else:
            cls._is_toolkit = any(getattr(base, '_is_toolkit', False) for base in bases)
        description: dict[str, Any] = {'name': name, 'description': ''}
        description |= _toolkit(cls) if cls._is_toolkit else _simple_tool(cls)
        cls.__tool_description__ = description


def _is_api(value: Any) -> bool:
    return callable(value) and hasattr(value, 'api_description')


def _api(value: Any) -> dict[str, Any]:
    return getattr(value, 'api_description', None) or describe(value)


def _tool_classes(cls: type) -> list[type]:
    return [base for base in cls.__mro__ if base.__module__ not in (__name__, 'builtins')]


def _toolkit(cls: type) -> dict[str, Any]:
    classes = _tool_classes(cls)
    words = (summary(base.__dict__.get('__doc__')) for base in classes)
    apis: dict[str, dict[str, Any]] = {}
    for base in reversed(classes):
        for key, value in vars(base).items():
            # A method that overrides an API is one as well, decorated or not.
            if key != 'run' and callable(value) and (_is_api(value) or key in apis):
                apis[key] = _api(value)
            elif key in apis:
                del apis[key]
    return {'description': next(filter(None, words), ''), 'api_list': list(apis.values())}


def _simple_tool(cls: type) -> dict[str, Any]:
    api: dict[str, Any] = {}
    words = ''
    for base in _tool_classes(cls):
        run_ = vars(base).get('run')
        if not api and callable(run_):
            api = _api(run_)
            words = words or api['description']
        words = words or summary(base.__dict__.get('__doc__'))
    described = {
        'description': words,
        'parameters': api.get('parameters', []),
        'required': api.get('required', []),
    }
    return described | ({'return_data': api['return_data']} if 'return_data' in api else {})


class BaseAction(metaclass=ToolMeta):
    """Base class of tools.

    A simple tool has a method `run`; a toolkit has several methods decorated with `tool_api`.
    What the model is told comes from their hints and Google-style docstrings::

        class Bold(BaseAction):
            '''Make text bold.'''

            def run(self, text: str):
                '''
                Args:
                    text: the text
                '''
                return f'**{text}**'

    An API that declares a parameter `session_id` is given the session of the run that calls it;
    the model is not asked for it, unless the API's docstring documents it.

    Args:
        description: replaces the description that was read from the class.
        parser: class that reads the inputs and writes the outputs.

    Attributes:
        idempotent: whether its APIs may be called again when nobody knows how a call ended, unless
            `tool_api` says it of one of them.
        network: whether they reach other machines.
        runs_code: whether they run code that the model wrote.
    """

    __tool_description__: dict[str, Any]
    _is_toolkit: bool
    idempotent: ClassVar[bool] = False
    network: ClassVar[bool] = False
    runs_code: ClassVar[bool] = False

    def __init__(
        self, description: dict[str, Any] | None = None, parser: type[BaseParser] = JsonParser
    ) -> None:
        self._description = deepcopy(description or self.__tool_description__)
        self._name: str = self._description['name']
        self._parser = parser(self)

    def __call__(self, inputs: Any, name: str = 'run') -> ActionReturn:
        """Call an API of the tool.

        Args:
            inputs: its arguments, in the form that the tool's parser reads.
            name: which API.

        Returns:
            The result, or what went wrong: a tool that fails raises nothing.
        """
        return run(self._invoke(settle, inputs, name))

    def _invoke(self, caller: Callable[..., Any], inputs: Any, name: str) -> Flow[ActionReturn]:
        asked = {'inputs': inputs, 'name': name}
        api = getattr(self, name) if name in self._api_names() and hasattr(self, name) else None
        if not callable(api):
            return self._failure(asked, f'invalid API: {name}', ActionStatusCode.API_ERROR)
        try:
            arguments = self._parser.parse_inputs(inputs, name)
            typed = typed_arguments(api, arguments)
        except ParseError as error:
            return self._failure(asked, error.err_msg, ActionStatusCode.ARGS_ERROR)
        except Exception as error:  # noqa: BLE001 - a parser may be anybody's
            return self._failure(asked, _words(error), ActionStatusCode.ARGS_ERROR)
        try:
            outputs = yield from call(caller, api, **typed, **_session(api, arguments))
            if isinstance(outputs, ActionReturn):
                outputs.args = outputs.args or arguments
                outputs.type = outputs.type or self.name
                return outputs
            result = self._parser.parse_outputs(outputs)
        except CONTROL_ERRORS:
            raise
        except Exception as error:  # noqa: BLE001 - what a tool raises is its result
            return self._failure(arguments, _words(error), ActionStatusCode.API_ERROR)
        return ActionReturn(arguments, type=self.name, result=result)

    def json_schemas(self) -> dict[str, dict[str, Any]]:
        """The JSON schema of the arguments of each API.

        Returns:
            A schema of an object for each name in the tool's description.
        """
        apis = self._description.get('api_list', [self._description])
        return {
            api['name']: parameters_schema(
                api, getattr(self, api['name'] if self.is_toolkit else 'run', None)
            )
            for api in apis
        }

    def declares(self, trait: Literal['idempotent', 'network'], name: str = 'run') -> bool:
        """Whether something is declared of an API, by `tool_api` or by the class.

        Args:
            trait: what.
            name: which API.

        Returns:
            True if it is.
        """
        declared: Collection[str] = getattr(getattr(self, name, None), 'api_traits', ())
        return trait in declared or bool(getattr(self, trait))

    def _api_names(self) -> list[str]:
        if self.is_toolkit:
            return [api['name'] for api in self._description['api_list']]
        return ['run']

    def _failure(self, args: dict[str, Any], words: str, state: ActionStatusCode) -> ActionReturn:
        return ActionReturn(args, type=self.name, errmsg=words, state=state)

    @property
    def name(self) -> str:
        """The name that models call the tool by."""
        return self._name

    @property
    def is_toolkit(self) -> bool:
        """Whether the tool has several APIs, called ``Tool.api``."""
        return 'api_list' in self._description

    @property
    def description(self) -> dict[str, Any]:
        """What models are told about the tool."""
        return self._description

    def __repr__(self) -> str:
        return str(self.description)


class AsyncActionMixin(BaseAction):
    """Makes a tool asynchronous: ``class Tool(AsyncActionMixin, BaseAction)``.

    Its APIs may be ``async`` or plain methods; a call of the tool is awaited.
    """

    async def __call__(  # type: ignore[override]
        self, inputs: Any, name: str = 'run'
    ) -> ActionReturn:
        """Call an API of the tool.

        Args:
            inputs: its arguments, in the form that the tool's parser reads.
            name: which API.

        Returns:
            The result, or what went wrong: a tool that fails raises nothing.
        """
        return await arun(self._invoke(_directly, inputs, name))


def _directly(fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    return fn(*args, **kwargs)


def _session(api: Callable[..., Any], arguments: dict[str, Any]) -> dict[str, Any]:
    if SESSION_PARAMETER in arguments:
        return {}
    try:
        parameter = inspect.signature(api).parameters.get(SESSION_PARAMETER)
    except (TypeError, ValueError):
        return {}
    context = current_context()
    if parameter is None or (context is None and parameter.default is not parameter.empty):
        return {}
    return {SESSION_PARAMETER: DEFAULT_SESSION if context is None else context.session_id}


def _words(error: Exception) -> str:
    return str(error) or type(error).__name__
