# SPDX-License-Identifier: Apache-2.0
"""Installs `torch-pyprof` (import name `pyprof`); tool settings are in pyproject.toml.

The extension makes recording cheaper and nothing else: where it cannot be compiled, or Python runs without its global
lock, the same is done in Python. It does not keep to the limited API, which has neither a frame's caller nor, before
Python 3.12, vectorcall.

torch is not a requirement. `parse` and `prof` read recordings on machines that have none, and where torch is
needed, to capture, it is already there, often a build for one CUDA version that pip must not replace.
cupti-python is an extra, only for the opt-in CUPTI collector. It has no upper bound: each torch pins the
nvidia-cuda-cupti it was built with, and cupti-python has to be free to follow it down as well as up.
"""

import os
import re
import sysconfig
from pathlib import Path

from setuptools import Extension, find_packages, setup

HERE = Path(__file__).parent
VERSION = re.search(r'^__version__ = "(.+)"$', (HERE / "pyprof/__init__.py").read_text(encoding="utf-8"), re.M)[1]
# Debug information would name the folder in which the wheel is built: the same source gives the same bytes.
FLAGS = [] if os.name == "nt" else ["-g0"]
VIEWER = ["fastapi>=0.110", "uvicorn>=0.23", "XlsxWriter>=3.0.1", "fpdf2>=2.7.5"]
NOTICES = "pyprof/server/static/third-party.txt"


def description() -> str:
    """README.md without images and with the targets of relative links in brackets: a package index shows the page
    without the rest of the repository."""
    text = (HERE / "README.md").read_text(encoding="utf-8")
    text = re.sub(r"^!\[.*?\]\(.*?\)\n", "", text, flags=re.M)
    text = re.sub(r"\[([^\]]+)\]\(\1\)", r"\1", text)
    return re.sub(r"\[([^\]]+)\]\((?!https?:)([^)]*)\)", r"\1 (\2)", text)


setup(
    name="torch-pyprof",  # `pyprof` on PyPI is another project
    version=VERSION,
    description="Why a PyTorch program is slow: the line, the module, and the change that helps",
    long_description=description(),
    long_description_content_type="text/markdown",
    author="PyProf developers",
    keywords="pytorch profiler cuda gpu kernel flops nvtx nsight dlprof tensorboard kineto deep-learning",
    license="Apache-2.0",
    # The second is of what the page of the viewer contains, where that is built.
    license_files=[name for name in ("LICENSE", NOTICES) if (HERE / name).is_file()],
    python_requires=">=3.11",
    packages=find_packages(include=["pyprof", "pyprof.*"]),
    # An editable install is then a path, not a finder: a folder called pyprof beside a script, such as the clone
    # itself, would be imported before a finder is asked, as a namespace package with nothing in it.
    package_dir={"": "."},
    ext_modules=[
        Extension(
            "pyprof.capture._compiled",
            ["pyprof/capture/_compiled.c"],
            optional=True,
            extra_compile_args=FLAGS,
        )
        for _ in range(not sysconfig.get_config_var("Py_GIL_DISABLED"))
    ],
    package_data={"pyprof": ["py.typed", "**/*.sql", "server/static/**/*", "server/demo/*.gz"]},
    install_requires=[
        "adbc-driver-sqlite>=1.2",
        "cxxfilt>=0.3",
        "msgspec>=0.18",
        "numpy>=1.26",
        "nvtx>=0.2.12",
        "pandas>=2.2",
        "pyarrow>=15.0",  # from 26 on with numpy 2 alone, which it does not declare: see pyprof/core/frame.py
        "rich>=13",
    ],
    extras_require={
        "completion": ["argcomplete>=3"],
        "cupti": ["cupti-python>=13.0.1"],
        "fleet": ["dask[distributed]>=2024.5", "fsspec>=2024.5"],
        "jupyter": ["jupyter-server-proxy>=4.1.1", *VIEWER],  # the first that asks WebSockets for the user
        "lightning": ["lightning>=2.2"],
        "mcp": ["mcp>=2", "pydantic>=2"],
        "notebook": ["ipython>=8.15"],
        "tui": ["textual>=8", "pydantic>=2"],
        "tensorboard": ["tensorboard>=2.8", "a2wsgi>=1.10", *VIEWER],  # 2.7 cannot run on Python 3.11
        "transformers": ["transformers>=4.41", "accelerate>=1.1"],
        "viewer": VIEWER,
    },
    entry_points={
        "console_scripts": [
            "pyprof = pyprof.commands.main:main",
            "torch-pyprof = pyprof.commands.main:main",  # for uvx and pipx run, which look for the package's name
            "dlprof = pyprof.dlprof.command:main",
            "dlprofviewer = pyprof.commands.view:dlprofviewer",
            "prof.py = pyprof.commands.main:prof",
        ],
        "jupyter_serverproxy_servers": ["pyprof = pyprof.integrations.jupyter:server"],
        "tensorboard_plugins": ["pyprof = pyprof.integrations.tensorboard:Plugin"],
        "pytest11": ["pyprof = pyprof.integrations.pytest_plugin"],
    },
    scripts=["scripts/parse.py"],  # not an entry point: see its docstring
    classifiers=[
        "Development Status :: 4 - Beta",
        "Environment :: Console",
        "Intended Audience :: Developers",
        "Programming Language :: Python :: 3 :: Only",
        "Programming Language :: Python :: 3.11",
        "Programming Language :: Python :: 3.12",
        "Programming Language :: Python :: 3.13",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
        "Topic :: Software Development",
    ],
)
