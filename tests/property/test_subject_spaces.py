"""What streams must not hear, against a comparison with every space."""

from hypothesis import given
from hypothesis import strategies as st

from streamlog.errors import InvalidSubject
from streamlog.metadata.stream.subjects import check_form, check_space, overlap, takes_inboxes

TOKENS = ("*", "a", "$JS", "$JSC", "$NRG", "$SYS", "_INBOX", "API", "EVENT", "ACCOUNT", "b")
SPACES = ("$JS.>", "$JSC.>", "$NRG.>", "$SYS.>")
subjects = st.builds(
    lambda tokens, rest: ".".join((*tokens, *rest)),
    st.lists(st.sampled_from(TOKENS), min_size=1, max_size=4),
    st.sampled_from([(), (">",)]),
) | st.just(">")


def refused(subject: str) -> bool:
    try:
        check_space(subject)
    except InvalidSubject:
        return True
    return False


@given(subjects)
def test_what_overlaps_with_no_space_is_taken(subject: str) -> None:
    guarded = any(overlap(subject, space) for space in SPACES)
    events = subject.startswith(("$JS.EVENT.", "$SYS.ACCOUNT."))
    assert refused(subject) == (guarded and not events)
    assert takes_inboxes(subject) == any(overlap(subject, it) for it in ("_INBOX.a", "_INBOX.a.a"))


@given(st.text(min_size=1, max_size=5))
def test_white_space_is_found_wherever_it_is(text: str) -> None:
    blank = any(char.isspace() or ord(char) < 32 or ord(char) == 127 for char in text)
    try:
        check_form(text)
    except InvalidSubject as error:
        assert blank == ("white space" in str(error))
    else:
        assert not blank
