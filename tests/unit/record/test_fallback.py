import subprocess
import sys

PROGRAM = """
import sys, warnings
records = ("record._codec", "record._columns")
for name in (*records, *("ingest._" + it for it in ("inflow", "spread", "frames", "acks"))):
    sys.modules["streamlog." + name] = None
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    import streamlog.record.codec, streamlog.record.columns
    import streamlog.ingest.parser.frames, streamlog.ingest.acks.acks
print([(warning.category.__name__, "plain Python" in str(warning.message)) for warning in caught])
run = streamlog.record.codec.RecordRun()
run.append(None, b"works")
batch = run.seal(base_offset=0, leader_epoch=0, timestamp_ms=0)
print([record.value for record in streamlog.record.codec.iter_records(batch)])
"""


def test_one_warning_when_the_compiled_parts_are_missing() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == ["[('RuntimeWarning', True)]", "[b'works']"]
