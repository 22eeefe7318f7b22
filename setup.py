"""Builds the compiled twins of the hot loops; all other settings are in pyproject.toml.

Where there is no C compiler the extensions are skipped and their plain Python twins take over.
"""

from setuptools import Extension, setup

try:
    from Cython.Build import cythonize
except ImportError:
    extensions = []
else:
    modules = (
        "record._codec",
        "record._columns",
        "record._keys",
        "record._subjects",
        "ingest._inflow",
        "ingest._spread",
        "ingest._frames",
        "ingest._acks",
    )
    extensions = cythonize(
        [
            Extension(
                f"streamlog.{module}",
                [f"streamlog/{module.replace('.', '/')}.pyx"],
                extra_compile_args=["-O3"],
            )
            for module in modules
        ],
        compiler_directives={"language_level": "3"},
    )
    for extension in extensions:
        extension.optional = True  # set here, since cythonize makes other objects without it

setup(ext_modules=extensions)
