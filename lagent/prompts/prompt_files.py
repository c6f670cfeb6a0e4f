"""Prompts that lie in files, in several languages, each of which a folder can replace."""

import re
from importlib import resources
from os import PathLike
from pathlib import Path


class PromptFiles:
    """The prompts of one agent.

    A prompt is the file ``<language>/<name>.md``. One in the user's folder goes before the one that
    comes with lagent, so that a folder needs to hold only what is different. Fields in braces, such
    as ``{files}``, are replaced where they are known; other braces stay.

    Args:
        agent: whose prompts: a folder of `lagent.prompts`.
        language: ``'en'``, ``'zh'``, or a language that the folder has all prompts in.
        folder: the user's folder.

    Raises:
        ValueError: there are no prompts in this language, or there is no such folder.
    """

    def __init__(
        self, agent: str, language: str = 'en', folder: str | PathLike[str] | None = None
    ) -> None:
        if folder is not None and not Path(folder).is_dir():
            raise ValueError(f'There is no folder {folder} with prompts.')
        own = resources.files('lagent.prompts').joinpath(agent)
        places = [own.joinpath(language)] if language.isalpha() else []
        if folder is not None:
            places.insert(0, Path(folder) / language)
        self._places = [place for place in places if place.is_dir()]
        if not self._places:
            known = sorted(place.name for place in own.iterdir() if place.is_dir())
            where = '' if folder is None else f' and there is no folder {Path(folder, language)}'
            raise ValueError(
                f'There are prompts in {known}, not in {language!r},{where}'.rstrip(',')
            )

    def text(self, name: str, /, **fields: str) -> str:
        """A prompt.

        Args:
            name: its name.
            fields: what takes the places of its fields.

        Returns:
            Its text.

        Raises:
            LookupError: neither the folder nor lagent has it in this language.
        """
        for place in self._places:
            file = place.joinpath(f'{name}.md')
            if file.is_file():
                text = file.read_text('utf-8')
                break
        else:
            raise LookupError(f'There is no prompt {name}.md in {[str(p) for p in self._places]}')
        # In one pass: what takes the place of a field may look like another one.
        return re.sub(r'\{(\w+)\}', lambda match: fields.get(match[1], match[0]), text)
