"""Text of others, for a terminal: nothing in it is obeyed, and nothing looks like what it is not.

Names, client ids and errors come from any client. A terminal takes some characters for orders
(ECMA-48), others turn the order of what follows round or are not seen at all (Unicode's bidi and
format controls). Whatever writes to a terminal or a log file sends all text through here.
"""

import json
import re
from typing import Final

_UNSEEN: Final = (
    "\x7f-\x9f\xad\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3"
    "\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
_IN_A_LINE: Final = re.compile(f"[\x00-\x1f{_UNSEEN}]")
_IN_TEXT: Final = re.compile(f"[\x00-\x08\x0b-\x1f{_UNSEEN}]")


def visible(text: str) -> str:
    """One line, with all of these written as Python writes them."""
    return _IN_A_LINE.sub(_escaped, text)


def visible_lines(text: str) -> str:
    """The same, but line ends and tabs stay: of text of our own, in which there may be others'."""
    return _IN_TEXT.sub(_escaped, text)


def visible_json(value: object) -> str:
    """One line of JSON that is read back as what it was."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    return _IN_A_LINE.sub(lambda found: json.dumps(found[0])[1:-1], text)


def _escaped(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode("ascii")
