"""Prove that an installed wheel is whole: every module imports, and the image's files are in it.

Run it with an interpreter that has the wheel and only the libraries that the wheel asks for.
"""

import importlib
import importlib.metadata
import pkgutil
import sys
from pathlib import Path

import lagent
import sandbox
from sandbox.image import guest_folder, image_tag

# What runs in a sandbox is no module here; the expectations and the plugins need pytest, and the
# page its extra.
NOT_IMPORTED = {'_docker', 'guest', 'conformance', 'pytest_plugin', 'ui'}
PAGE = ('static/app.js', 'static/vendor/pico.min.css', 'templates/page.html')


def main() -> None:
    """Import everything, look for the files, and say what was found."""
    home = Path(lagent.__file__).parents[1]
    if 'site-packages' not in home.parts:
        sys.exit(f'this is the source tree and not an installed wheel: {home}')
    modules = [
        module.name
        for package in (lagent, sandbox)
        for module in pkgutil.walk_packages(package.__path__, f'{package.__name__}.')
        if not NOT_IMPORTED & set(module.name.split('.'))
    ]
    for name in modules:
        importlib.import_module(name)
    for package in (lagent, sandbox):
        for name in package.__all__:
            getattr(package, name)
        if not Path(package.__file__).with_name('py.typed').is_file():
            sys.exit(f'{package.__name__} has no py.typed')
    folder = guest_folder()
    if folder != home / 'sandbox' / '_docker' or not (folder / 'Dockerfile').is_file():
        sys.exit(f'the files of the kernel image are not in the wheel: {folder}')
    missing = [name for name in PAGE if not (home / 'lagent' / 'ui' / name).is_file()]
    if missing:
        sys.exit(f'files of the page are not in the wheel: {missing}')
    strange = [path.name for path in folder.rglob('*') if path.suffix in {'.whl', '.tar'}]
    if strange:
        sys.exit(f'the wheel holds what was built: {strange}')
    version = importlib.metadata.version('lagent-sandbox')
    print(f'{version}: {len(modules)} modules import; the image would be {image_tag()}')


if __name__ == '__main__':
    main()
