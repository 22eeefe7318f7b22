"""``python -m tests.mutation``: plant small mistakes into the pure cores, one at a time; the tests must find each.

Results are kept in a file, and only what changed is tried again. No file of the checkout changes; Ctrl-C loses nothing.
"""

import argparse
import os
import sys
import traceback
from pathlib import Path
from typing import Final

from tests.mutation import results
from tests.mutation.cores import CORES, ROOT, Core, is_left_out
from tests.mutation.mutants import Mutant
from tests.mutation.results import Equivalents, Results
from tests.mutation.trial import Outcome, Trial, end_with_parent, run

RESULTS: Final = ROOT / "build" / "mutation.jsonl"
REACHES: Final = RESULTS.with_name("mutation-reaches.json")
EQUIVALENT: Final = Path(__file__).with_name("equivalent.toml")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__)
    names = [core.name for core in CORES]
    parser.add_argument("cores", nargs="*", help=f"of {', '.join(names)}; by default all")
    parser.add_argument(
        "--sample",
        type=int,
        metavar="N",
        help="so many mutants of each core, by --seed; all if left out",
    )
    parser.add_argument("--seed", type=int, default=0, help="of the sample (%(default)s)")
    parser.add_argument(
        "--function", default="", help="only of functions whose module or name contains this"
    )
    parser.add_argument(
        "--again", action="store_true", help="try survivors again, after tests were added"
    )
    parser.add_argument(
        "--tests",
        default="",
        help="only those whose path contains this, such as unit/; survivors may be killed --again by others",
    )
    parser.add_argument(
        "--budget-s", type=float, default=20.0, help="of tests for each mutant (%(default)s)"
    )
    parser.add_argument(
        "--least-percent",
        type=float,
        default=95.0,
        help="killed in each core, or the exit code is 1 (%(default)s)",
    )
    parser.add_argument("--results", type=Path, default=RESULTS, help="the file (%(default)s)")
    parser.add_argument("--report", action="store_true", help="only show what is in the file")
    options = parser.parse_args()
    unknown = set(options.cores) - set(names)
    if unknown:
        parser.error(
            f"there is no core {', '.join(sorted(unknown))}: choose from {', '.join(names)}"
        )
    if os.environ.get("PYTHONHASHSEED") != "0":
        parser.error("set PYTHONHASHSEED=0, as `make test` does: simulated stories depend on it")
    kept = Results(options.results)
    equivalents = Equivalents(EQUIVALENT)
    rows = []
    for core in [core for core in CORES if core.name in (options.cores or names)]:
        mutants = [m for module in core.modules for m in module.mutants]
        for stale in equivalents.stale(mutants, {m.module for m in core.modules}):
            print(f"{EQUIVALENT.name}: there is no such mutant any more: {stale}")
        chosen = [m for m in mutants if options.function in f"{m.module}.{m.function}"]
        chosen = results.sample(chosen, options.sample, options.seed)
        if not options.report:
            due = [
                mutant
                for mutant in chosen
                if kept.is_due(mutant, again=options.again) and not equivalents.reason(mutant)
            ]
            if due:
                _try(core, due, kept, options.tests, options.budget_s)
                kept.read()
        rows += results.rows(core.name, chosen, kept, equivalents)
        for mutant in chosen:
            if kept.is_survivor(mutant) and not equivalents.reason(mutant):
                print(f"{kept.outcome(mutant)}: {mutant}", flush=True)
    print(results.table(rows))
    if any(row.percent < options.least_percent for row in rows if row.is_total):
        sys.exit(1)


def _try(core: Core, mutants: list[Mutant], kept: Results, tests: str, budget_s: float) -> None:
    """In a process of its own: no core meets what the tests of another one have imported."""
    print(f"{core.name}: {len(mutants)} mutants to try", flush=True)
    process = os.fork()
    if process:
        _, status = os.waitpid(process, 0)
        if status:
            sys.exit(
                f"{core.name}: the trials ended with status {os.waitstatus_to_exitcode(status)}"
            )
        return
    end_with_parent()
    status = 1
    try:
        count = 0

        def tried(trial: Trial) -> None:
            nonlocal count
            count += 1
            kept.add(trial)
            if trial.outcome in {Outcome.SURVIVED, Outcome.NOT_REACHED}:
                print(f"{count}/{len(mutants)} {trial.outcome}: {trial.mutant}", flush=True)

        run(
            core.modules,
            mutants,
            [str(ROOT / "tests" / name) for name in core.tests if tests in f"{name}/"],
            left_out=is_left_out,
            reaches=REACHES,
            budget_s=budget_s,
            on_trial=tried,
            told=lambda line: print(f"{core.name}: {line}", flush=True),
        )
        status = 0
    except KeyboardInterrupt:
        print("interrupted; what was tried is kept", flush=True)
    except Exception:
        traceback.print_exc()
    finally:
        os._exit(status)


if __name__ == "__main__":
    main()
