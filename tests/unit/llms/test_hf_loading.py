"""Which file of a checkpoint the loaders are pointed at."""

from pathlib import Path

import pytest

from lagent.errors import ConfigError
from lagent.llms.hf_engine import source


def test_names_and_checkpoints_are_taken_as_they_are(tmp_path: Path) -> None:
    assert source('org/name') == {'pretrained_model_name_or_path': 'org/name'}
    (tmp_path / 'config.json').touch()
    (tmp_path / 'model.gguf').touch()
    assert source(str(tmp_path)) == {'pretrained_model_name_or_path': str(tmp_path)}


def test_gguf_files_and_folders(tmp_path: Path) -> None:
    file = tmp_path / 'model.Q4_1.gguf'
    file.touch()
    expected = {'pretrained_model_name_or_path': str(tmp_path), 'gguf_file': file.name}
    assert source(str(file)) == source(str(tmp_path)) == expected
    (tmp_path / 'model.Q8_0.gguf').touch()
    with pytest.raises(ConfigError, match=r'Q4_1.*Q8_0'):
        source(str(tmp_path))
