"""Builds the compiled twins of the hot loops; all other settings are in pyproject.toml.

Where there is no C compiler the extensions are skipped and their plain Python twins take over.
"""

from runpy import run_path

from setuptools import Extension, setup

try:
    from Cython.Build import cythonize
except ImportError:
    extensions = []
else:
    sources = run_path("streamlog/app/extensions.py")
    extensions = cythonize(
        [
            Extension(
                f"streamlog.{name}",
                [f"streamlog/{name.replace('.', '/')}.pyx"],
                extra_compile_args=["-O3"],
            )
            for name in sources["EXTENSIONS"]
        ],
        compiler_directives={"language_level": "3"},
    )
    for extension in extensions:
        extension.optional = True  # set here, since cythonize makes other objects without it
        digest = sources["digest"](extension.name.removeprefix("streamlog."))
        extension.define_macros.append(("STREAMLOG_SOURCES", f"{digest}ULL"))
        extension.depends += map(str, sources["declarations"]())

setup(ext_modules=extensions)
