"""Which module may import which: the direction of dependencies in docs/design, read with ast.

A module imports from layers below its own, or from its own package. Imports inside functions and
for type checkers count like all others, unless `LATE` names them.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

# Lowest layer first; what stands in one layer may import one another. The longest prefix counts.
LAYERS = {
    'lagent': [
        ['version', 'errors', 'schema', '_extras', '_variables', 'utils', 'config'],
        ['context', 'limits', 'flow', 'portal', 'concurrency', 'server_process', 'warden'],
        ['effects', 'positions', 'watch'],
        ['view'],
        ['prompts', 'memory', 'llms', 'hooks', 'actions', 'analysis', 'journal'],
        ['agents'],
        ['events', 'steps', 'dialogue'],
        [
            *('console', 'outcomes', 'inline_images', 'settings', 'doctor', 'distributed'),
            *('trace_content', 'tracing', 'trajectory', 'export', 'testing', 'pytest_plugin'),
            'agent_factory',
        ],
        ['runs_cli', 'machine_cli', 'conversation', 'ui'],
        ['cli'],
    ],
    'sandbox': [
        [
            *('errors', 'types', 'policy', 'egress', 'owner', 'portal', 'events', 'survival'),
            *('threads', 'loops', 'uncopied', 'counts'),
            *('rich', 'svg', 'notebook_view', 'kernel.text', 'kernel.mime', 'kernel.spill'),
        ],
        ['kernel.collector', 'kernel.render'],
        ['kernel', 'backends', 'image', 'image_names', 'image_build', 'layer'],
        ['files', 'outputs', 'artifacts', 'calls', 'admission', 'reaper', 'sweep'],
        ['pool', 'reattacher'],
        ['core'],
        ['session'],
        ['manager', 'testing'],
        ['console', 'exit_codes', 'doctor', 'conformance', 'pytest_plugin'],
        ['cli', '__main__'],
    ],
}

# An arrow back that exists for a reason: a module that loads another one only when it is used.
LATE = {
    ('sandbox.types', 'sandbox.kernel.render'),  # `ExecutionResult.text` is how a result is shown
    ('sandbox.policy', 'sandbox.backends'),  # `enforced_by` asks the back end that is named
}

# The expectations that ship for other people's back ends use public names, as their readers do.
OUTSIDE = 'sandbox.conformance'

# `lagent` sees nothing of `sandbox` but its public names, and in these places only. The portal is
# there because a process has one, and a sandbox works without lagent.
MAY_IMPORT_SANDBOX = {
    *('lagent.actions.interpreter', 'lagent.actions.sandboxes', 'lagent.actions.snapshots'),
    'lagent.actions.given_files',
    'lagent.portal',
}


def modules(package: str) -> Iterator[tuple[str, Path]]:
    for path in sorted((ROOT / package).rglob('*.py')):
        parts = path.relative_to(ROOT).with_suffix('').parts
        if '_docker' not in parts:
            yield '.'.join(parts[:-1] if parts[-1] == '__init__' else parts), path


def imports(name: str, path: Path) -> Iterator[str]:
    """Full names of what a module imports: modules, and names inside modules."""
    is_package = path.name == '__init__.py'
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ''
            if node.level:
                parts = name.split('.')
                parents = parts[: len(parts) - node.level + is_package]
                base = '.'.join([*parents, base] if base else parents)
            yield from (f'{base}.{alias.name}' for alias in node.names)


def layer(package: str, name: str) -> int:
    """Number of the layer that the longest fitting prefix is in."""
    inner = name.removeprefix(f'{package}.')
    found = [
        (len(prefix), number)
        for number, layer in enumerate(LAYERS[package])
        for prefix in layer
        if inner == prefix or inner.startswith(f'{prefix}.')
    ]
    assert found, f'{name} is in no layer: say in this test where it belongs'
    return max(found)[1]


def own_module(name: str, known: set[str]) -> str:
    """The module that a name is in: `sandbox.types.Output` is in `sandbox.types`."""
    while name not in known:
        name = name.rpartition('.')[0]
    return name


@pytest.mark.parametrize('package', ['lagent', 'sandbox'])
def test_no_module_imports_from_a_layer_above(package: str) -> None:
    known = {name for name, _ in modules(package)}
    arrows_back = []
    for name, path in modules(package):
        if name == package or name.startswith(OUTSIDE):
            continue
        for imported in imports(name, path):
            if imported.partition('.')[0] != package:
                continue
            target = own_module(imported, known)
            assert target != package, (
                f'{name} imports {imported}: import it from the module that defines it'
            )
            if layer(package, target) > layer(package, name) and (name, target) not in LATE:
                arrows_back.append(f'{name} -> {target}')
    assert arrows_back == []


def test_sandbox_never_imports_lagent() -> None:
    found = [
        name
        for name, path in modules('sandbox')
        for imported in imports(name, path)
        if imported.partition('.')[0] == 'lagent'
    ]
    assert found == []


def test_lagent_imports_public_names_of_sandbox_in_few_places() -> None:
    import sandbox

    found = {
        (name, imported)
        for name, path in modules('lagent')
        for imported in imports(name, path)
        if imported.partition('.')[0] == 'sandbox'
    }
    assert {name for name, _ in found} <= MAY_IMPORT_SANDBOX
    assert {imported for _, imported in found} <= {'sandbox'} | {
        f'sandbox.{public}' for public in sandbox.__all__
    }


def test_the_guest_imports_neither_package() -> None:
    """What runs in the container is copied there alone."""
    found = [
        (path.name, imported)
        for path in sorted((ROOT / 'docker').glob('*.py'))
        for imported in imports(path.stem, path)
        if imported.partition('.')[0] in ('lagent', 'sandbox', 'docker')
    ]
    assert found == []


def test_late_imports_are_still_needed() -> None:
    paths = dict(modules('sandbox')) | dict(modules('lagent'))
    for name, target in LATE:
        assert any(imported.startswith(target) for imported in imports(name, paths[name]))
