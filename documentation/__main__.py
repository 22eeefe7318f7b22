"""Write the pages that are made out of the code; with ``--check``, say what is wrong with all pages."""

import sys

from documentation import apis, codes, configuration, http_api, node_file, stream_settings
from documentation.checks import CHECKS

if sys.argv[1:] == ["--check"]:
    problems = [problem for check in CHECKS for problem in check()]
    print("\n".join(problems), file=sys.stderr) if problems else print("the pages are right")
    sys.exit(bool(problems))

for made in (apis, codes, configuration, http_api, node_file, stream_settings):
    made.PAGE.write_text(made.page())
    print(f"{made.PAGE} is written")
