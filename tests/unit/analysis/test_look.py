"""The cell that looks at files: what it needs, and what is made of its result."""

import ast
import sys
from importlib import resources

from lagent.analysis.look import MIME, MODULES, found_profiles, look_code
from sandbox import ExecutionResult, Outcome, Output


def display(data):
    return ExecutionResult(Outcome.OK, (Output('display', '', {MIME: data}),))


def errors(result):
    return [profile.error for profile in found_profiles(result, [('a.csv', 1), ('b.csv', 2)])]


def test_the_sources_need_only_the_standard_library_and_those_before_them():
    guest = resources.files('lagent.analysis.guest')
    known: list[str] = []
    for name in (*MODULES, 'launch'):
        for node in ast.walk(ast.parse(guest.joinpath(f'{name}.py').read_text('utf-8'))):
            if isinstance(node, ast.ImportFrom) and node.level:
                assert node.module in known
            elif isinstance(node, ast.Import | ast.ImportFrom):
                names = [a.name for a in node.names]
                roots = names if isinstance(node, ast.Import) else [node.module]
                allowed = sys.stdlib_module_names | ({'IPython'} if name == 'launch' else set())
                assert {str(root).partition('.')[0] for root in roots} <= allowed
        known.append(name)
    compile(look_code(['a.csv', "it's.csv"]), 'cell', 'exec')


def test_whatever_the_cell_puts_out_there_is_a_profile_for_each_file():
    nothing = 'nothing credible came back from the look at it'
    assert errors(display({'profiles': {'a.csv': {'kind': 'text'}}})) == [None, nothing]
    assert errors(display({'error': 'boom'})) == ['it could not be looked at: boom'] * 2
    assert errors(display('text')) == errors(display({'profiles': []})) == [nothing] * 2
    died = ExecutionResult(Outcome.KERNEL_DIED)
    assert errors(died) == ['it could not be looked at: the look ended with kernel_died'] * 2
