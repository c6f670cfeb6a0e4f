"""The kernel image with what other libraries expect in one: pip and a kernel gateway."""

import subprocess
import sys
import tempfile
from pathlib import Path

import docker
from sandbox.image import find_image

TAG = 'lagent-sandbox-peers'
_PYTHON = '3.11'
_ADDED = ('jupyter-kernel-gateway', 'pip')
# A kernel gateway is what AutoGen's and smolagents' own images hold. llm-sandbox looks for Python
# and pip in an environment of its own, and asks pip for IPython, which is there.
_DOCKERFILE = """
FROM {image}
USER root
COPY added /opt/added
RUN echo /opt/added > /opt/venv/lib/python{python}/site-packages/added.pth \\
 && /opt/venv/bin/python -m compileall -q /opt/added \\
 && mkdir -p /sandbox/.sandbox-venv/bin && cd /sandbox/.sandbox-venv/bin \\
 && printf '#!/bin/sh\\nexec /opt/venv/bin/python "$@"\\n' >python \\
 && printf '#!/bin/sh\\nexec /opt/venv/bin/python -m pip "$@"\\n' >pip && chmod +x python pip
ENV HOME=/root TOKEN=UNSET
EXPOSE 8888
ENTRYPOINT []
CMD exec python -m kernel_gateway --KernelGatewayApp.ip=0.0.0.0 \\
    --KernelGatewayApp.port=8888 --KernelGatewayApp.auth_token="${{KG_AUTH_TOKEN:-$TOKEN}}" \\
    --JupyterWebsocketPersonality.list_kernels=true
"""


def build() -> str:
    """Build the image and return its name."""
    with tempfile.TemporaryDirectory() as folder:
        wanted = ['--only-binary=:all:', '--python-version', _PYTHON, '--quiet', *_ADDED]
        target = ['--target', f'{folder}/added']
        subprocess.run([sys.executable, '-m', 'pip', 'install', *target, *wanted], check=True)
        text = _DOCKERFILE.format(image=find_image(), python=_PYTHON)
        Path(folder, 'Dockerfile').write_text(text, encoding='utf-8')
        docker.from_env().images.build(path=folder, tag=TAG, rm=True)
    return TAG


def remove_containers() -> None:
    """Remove what a library has left behind of this image."""
    for container in docker.from_env().containers.list(all=True, filters={'ancestor': TAG}):
        container.remove(force=True)
