# SPDX-License-Identifier: Apache-2.0
"""Installs `torch-pyprof` (import name `pyprof`); tool settings are in pyproject.toml.

torch is not a requirement. `parse` and `prof` read recordings on machines that have none, and where torch is
needed, to capture, it is already there, often a build for one CUDA version that pip must not replace.
cupti-python is an extra, only for the opt-in CUPTI collector. It has no upper bound: each torch pins the
nvidia-cuda-cupti it was built with, and cupti-python has to be free to follow it down as well as up.
"""

import re
from pathlib import Path

from setuptools import find_packages, setup

HERE = Path(__file__).parent
VERSION = re.search(
    r'^__version__ = "(.+)"$', (HERE / "pyprof/__init__.py").read_text(encoding="utf-8"), re.M
)[1]

setup(
    name="torch-pyprof",  # `pyprof` on PyPI is another project
    version=VERSION,
    description="Which line, module and operator launched each kernel of a PyTorch program, and what it costs",
    long_description=(HERE / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    license_files=["LICENSE"],
    python_requires=">=3.11",
    packages=find_packages(include=["pyprof", "pyprof.*"]),
    package_data={"pyprof": ["py.typed", "**/*.sql", "viewer/static/**/*"]},
    install_requires=[
        "adbc-driver-sqlite",
        "cxxfilt",
        "msgspec",
        "numpy",
        "nvtx",
        "pandas",
        "pyarrow",
        "rich",
    ],
    extras_require={
        "cupti": ["cupti-python>=13.0.1"],
        "tensorboard": ["tensorboard"],
        "viewer": ["fastapi", "uvicorn", "XlsxWriter", "fpdf2"],
    },
    entry_points={
        "console_scripts": [
            "pyprof = pyprof.cli:main",
            "dlprof = pyprof.dlprof.command:main",
            "dlprofviewer = pyprof.viewer.command:dlprofviewer",
            "prof.py = pyprof.prof.prof:main",
        ]
    },
    scripts=["scripts/parse.py"],  # not an entry point: see its docstring
    classifiers=[
        "Environment :: Console",
        "Intended Audience :: Developers",
        "Programming Language :: Python :: 3 :: Only",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
        "Topic :: Software Development",
    ],
)
