"""``python -m tests.scenarios [--rewrite] [FILE ...]``: play scenarios, or write their traces again."""

import argparse
import sys
from pathlib import Path

from tests.scenarios.interpreters import SCENARIOS, play
from tests.scenarios.script import difference


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.scenarios", description=__doc__)
    parser.add_argument("files", nargs="*", type=Path, help="by default all")
    parser.add_argument("--rewrite", action="store_true", help="the traces, for `git diff` to show")
    options = parser.parse_args()
    other = 0
    for path in options.files or SCENARIOS:
        text, played = path.read_text(), play(path)
        if text == played:
            continue
        other += 1
        if options.rewrite:
            path.write_text(played)
            print(f"{path}: written again")
        else:
            print(difference(path.name, text, played))
    print(f"{other} of {len(options.files or SCENARIOS)} scenarios leave another trace")
    sys.exit(bool(other) and not options.rewrite)


if __name__ == "__main__":
    main()
