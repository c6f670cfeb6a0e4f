"""The kernel images that are on this machine; `image_names` and `image_build` have the rest."""

from collections.abc import Iterable

from sandbox.backends.engine import engine, exists
from sandbox.errors import BackendUnavailable, ImageMissing
from sandbox.image_build import build_image
from sandbox.image_names import (
    build_command,
    guest_folder,
    image_missing,
    image_tag,
    lock_of,
)
from sandbox.policy import DEFAULT_VARIANT, Variant

__all__ = [
    'best_variant',
    'build_command',
    'build_image',
    'find_image',
    'guest_folder',
    'image_missing',
    'image_tag',
    'lock_of',
]


def find_image(
    name: str | None = None,
    *,
    variant: Variant = DEFAULT_VARIANT,
    packages: Iterable[str] = (),
) -> str:
    """Return the name of an image that is on this machine.

    Args:
        name: An image that is not of this version; else None.
        variant: As in `image_tag`.
        packages: As in `image_tag`.

    Raises:
        ImageMissing: It is not there.
        BackendUnavailable: There is no Docker engine to ask.
    """
    wanted = name or image_tag(variant, packages)
    with engine() as client:
        if not exists(client, wanted):
            raise image_missing(name, variant, packages)
    return wanted


def best_variant() -> Variant:
    """Return the variant with the most libraries of those that are built; else the default.

    Where there is no engine, it is the default, too: to start a sandbox then says what is missing.
    """
    try:
        find_image(variant='analysis')
    except (ImageMissing, BackendUnavailable):
        return DEFAULT_VARIANT
    return 'analysis'
