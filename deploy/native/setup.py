"""Builds the compiled step in the version of the package that lies beside it; the same bytes from the same compiler.

The library knows no Python: it is loaded by its path, and needs neither Python's headers nor a wheel for each version.
"""

import re
from pathlib import Path

from setuptools import Extension, setup

PACKAGE = Path(__file__).resolve().parents[2] / "stream_dp" / "__init__.py"
(VERSION,) = re.findall(r'^__version__ = "(.+)"$', PACKAGE.read_text(), re.MULTILINE)

setup(
    version=VERSION,
    packages=[],
    ext_modules=[
        Extension(
            "stream_dp_native",
            ["stream_dp_native.c"],
            define_macros=[("STREAM_DP_VERSION", f'"{VERSION}"')],
            extra_compile_args=["-std=c99", "-O3", "-g0", "-Wall", "-Wextra"],
            extra_link_args=["-s"],
            py_limited_api=True,
        )
    ],
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
)
