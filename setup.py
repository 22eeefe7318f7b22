"""Builds the compiled parts, which are required; all other settings are in pyproject.toml."""

import shutil
import sys
import sysconfig
from pathlib import Path
from runpy import run_path

from Cython.Build import cythonize
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.errors import PlatformError

WANTED = (
    "streamlog has compiled parts: to build it from source, install a C compiler and Python's headers "
    "(Debian, Ubuntu: apt-get install gcc python3-dev; Fedora: dnf install gcc python3-devel; "
    "macOS: xcode-select --install), or install a wheel, which needs neither"
)

sources = run_path("streamlog/app/extensions.py")


class BuildExtensions(build_ext):
    """Says in one line what is missing, before the compiler's own messages could hide it. What it
    builds has no symbols, but with ``--debug``: they are five sixths of the size.
    """

    def build_extensions(self) -> None:
        command = getattr(self.compiler, "compiler_so", None)  # MSVC looks for itself
        headers = Path(sysconfig.get_path("include"), "Python.h")
        if command and not (shutil.which(command[0]) and headers.exists()):
            raise PlatformError(WANTED)
        if not self.debug and sys.platform != "win32":
            for made in self.extensions:
                made.extra_compile_args += ["-g0"]
                if sys.platform == "linux":
                    made.extra_link_args += ["-Wl,-s"]
        super().build_extensions()


def extension(name: str) -> Extension:
    return Extension(
        f"streamlog.{name}",
        [f"streamlog/{name.replace('.', '/')}.pyx"],
        extra_compile_args=["-O3"],
    )


extensions = cythonize(
    [extension(name) for name in sources["EXTENSIONS"]],
    compiler_directives={"language_level": "3"},
)
for made in extensions:  # set here, since cythonize makes other objects without it
    digest = sources["digest"](made.name.removeprefix("streamlog."))
    made.define_macros.append(("STREAMLOG_SOURCES", f"{digest}ULL"))
    made.depends += map(str, sources["declarations"]())

setup(ext_modules=extensions, cmdclass={"build_ext": BuildExtensions})
