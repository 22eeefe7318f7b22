import pytest

from streamlog.errors import InvalidSubject
from streamlog.metadata.stream.subject_transform import SubjectTransform

EXAMPLES = [
    ("a.* -> b.{{wildcard(1)}}", "a.x", "b.x"),
    ("a.*.* -> b.$2.$1", "a.x.y", "b.y.x"),
    ("a.* -> b.$1", "a.x.y", None),
    ("a.* -> b.$1", "c.x", None),
    ("a.> -> b.>", "a.x.y", "b.x.y"),
    ("a.> -> b.>", "a", None),
    ("> -> all.>", "a.b", "all.a.b"),
    ("*.> -> {{wildcard(1)}}.new.>", "a.b.c", "a.new.b.c"),
    ("a -> b", "a", "b"),
    ("a.* -> b.{{ Split(1, -) }}", "a.x-y--z", "b.x.y.z"),
    ("a.* -> b.{{splitFromLeft(1, 2)}}", "a.wxyz1", "b.wx.yz1"),
    ("a.* -> b.{{SplitFromRight(1,2)}}", "a.wxyz1", "b.wxy.z1"),
    ("a.* -> b.{{splitFromLeft(1,9)}}", "a.wx", "b.wx"),
    ("a.* -> b.{{sliceFromLeft(1,2)}}", "a.wxyz1", "b.wx.yz.1"),
    ("a.* -> b.{{sliceFromRight(1,2)}}", "a.wxyz1", "b.w.xy.z1"),
    ("a.* -> b.{{sliceFromRight(1,2)}}", "a.wxyz", "b.wx.yz"),
    ("a.* -> b.{{left(1,2)}}.{{right(1,3)}}", "a.wxyz", "b.wx.xyz"),
    ("a.* -> b.{{left(1,0)}}", "a.wxyz", "b.wxyz"),
]


@pytest.mark.parametrize(("text", "subject", "expected"), EXAMPLES)
def test_what_it_makes(text: str, subject: str, expected: str | None) -> None:
    assert SubjectTransform.parse(text)(subject) == expected


def test_partitions_are_by_the_hash_of_tokens() -> None:
    of_foobar = SubjectTransform.parse("a.* -> {{partition(2147483647,1)}}")("a.foobar")
    assert of_foobar == str(0xBF9CF968 % 2147483647), "as published with the algorithm, FNV-1a"
    of_one = SubjectTransform.parse("foo.*.* -> foo.{{partition(10,2)}}")
    assert of_one("foo.bar.baz") == of_one("foo.other.baz")
    of_all = SubjectTransform.parse("foo.*.* -> {{partition(1000)}}")
    assert of_all("foo.bar.baz") != of_all("foo.other.baz")
    parts = {SubjectTransform.parse("a.* -> {{partition(3,1)}}")(f"a.{i}") for i in range(50)}
    assert parts == {"0", "1", "2"}


@pytest.mark.parametrize(
    "text",
    [
        "a", "a -> ", "a -> b.>", "a.> -> b", "a.* -> b.*", "a..b -> c", "a -> b..c", "a -> .b",
        "a -> b.", "a.* -> $2", "a.* -> $0", "a -> $1", "a.* -> {{wildcard(2)}}",
        "a.* -> {{wildcard()}}", "a.* -> {{wildcard(1,1)}}", "a.* -> {{wildcard(x)}}",
        "a.* -> {{partition(0,1)}}", "a.* -> {{partition(x)}}",
        "a.* -> {{partition(9999999999)}}",
        "a.* -> {{split(1)}}", "a.* -> {{split(1,.)}}", "a.* -> {{left(1)}}",
        "a.* -> {{left(1,-1)}}",
        "a.* -> {{random(3)}}", "a.* -> {{nothing(1)}}", "a.* -> {{}}", "a.* -> {{wildcard(1)",
        "a.>.b -> c", "a.* -> b c",
    ],
)  # fmt: skip
def test_what_is_none(text: str) -> None:
    with pytest.raises(InvalidSubject):
        SubjectTransform.parse(text)
