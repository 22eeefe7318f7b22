"""All of the demo in order, and what it shows on the way."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from demo.ask import QUERY, ask_duckdb
from demo.compute import compute_delays
from demo.flights import Flights, load_flights
from demo.lake import TABLE, VIEW, FlightsTable
from demo.publish import ONE_BY_ONE, STREAM, publish_flights
from demo.read_back import ReadBack
from demo.servers import Servers, running_servers

ROWS_SHOWN = 10


@dataclass
class Story:
    """One run. ``results`` grows step by step."""

    console: Console
    folder: Path
    keep: bool
    results: list[tuple[str, str, str]] = field(default_factory=list)

    async def run(self) -> None:
        """Raises what went wrong; the servers have ended in any case."""
        self.console.print("[bold]streamlog[/]: NATS in, Kafka out, Spark over")
        flights = await asyncio.to_thread(load_flights)
        self.console.print(f"{len(flights):,} flights, {flights.size_bytes / 1e6:.0f} MB of JSON")
        async with running_servers(self.folder, default_ports=self.keep) as servers:
            with self._progress() as progress:
                await self._publish(servers, flights, self._bar(progress, "publish", flights))
                await self._read_back(servers, flights, progress)
                table = FlightsTable(servers.kafka, STREAM, self.folder / "lake")
                await self._write_table(table, flights, progress)
                await self._compute(servers, table, flights, progress)
                await self._ask(servers, flights, progress)
                await self._ask_table(table, flights, progress)
            self._show(flights)
            if self.keep:
                await self._stay(servers)

    async def _publish(
        self, servers: Servers, flights: Flights, advance: Callable[[int], None]
    ) -> None:
        median_s, rate = await publish_flights(servers.nats, flights, advance)
        self._result(
            "one by one", f"{median_s * 1e3:.2f} ms for an ack", f"{ONE_BY_ONE:,} synced acks"
        )
        count = len(flights) - ONE_BY_ONE
        self._result("publish, nats-py", f"{rate:,.0f}/s", f"{count:,} synced acks, in order")

    async def _read_back(self, servers: Servers, flights: Flights, progress: Progress) -> None:
        stop = Event()
        reading = ReadBack(servers.kafka, STREAM, flights, stop)
        try:
            read = self._bar(progress, "read", flights)
            rate = await asyncio.to_thread(reading.measure, read)
            compare = self._bar(progress, "compare", flights)
            await asyncio.to_thread(reading.compare, compare)
        finally:
            stop.set()
        self._result("read, confluent-kafka", f"{rate:,.0f}/s", "count, order, content")

    async def _compute(
        self, servers: Servers, table: FlightsTable, flights: Flights, progress: Progress
    ) -> None:
        task = progress.add_task("Spark", total=None)
        of_table = ["--table", TABLE, "--servers", servers.kafka]
        for name, value in table.catalog.items():
            of_table += ["--catalog-property", f"{name}={value}"]
        started = time.monotonic()
        in_files_s, in_table_s = await compute_delays(
            servers.data_dir, STREAM, flights, self.folder, of_table
        )
        progress.update(task, total=len(flights), completed=len(flights))
        whole = time.monotonic() - started
        rate = f"{len(flights) / in_files_s:,.0f}/s"
        self._result("compute, Spark", rate, f"as pandas; {whole:.0f} s from cold")
        rate = f"{len(flights) / in_table_s:,.0f}/s"
        self._result("the same of the table, Spark", rate, "as pandas")

    async def _ask(self, servers: Servers, flights: Flights, progress: Progress) -> None:
        task = progress.add_task("DuckDB", total=None)
        seconds = await asyncio.to_thread(ask_duckdb, servers.kafka, STREAM, flights)
        progress.update(task, total=len(flights), completed=len(flights))
        self._result("ask, DuckDB", f"{len(flights) / seconds:,.0f}/s", "as pandas, in one line")

    async def _write_table(self, table: FlightsTable, flights: Flights, progress: Progress) -> None:
        task = progress.add_task("Iceberg", total=None)
        seconds = await asyncio.to_thread(table.write)
        progress.update(task, total=len(flights), completed=len(flights))
        rate = f"{len(flights) / seconds:,.0f}/s"
        self._result("write an Iceberg table", rate, "exactly once, by day")

    async def _ask_table(self, table: FlightsTable, flights: Flights, progress: Progress) -> None:
        task = progress.add_task("Iceberg", total=None)
        seconds = await asyncio.to_thread(table.ask, flights)
        progress.update(task, total=len(flights), completed=len(flights))
        rate = f"{len(flights) / seconds:,.0f}/s"
        self._result("the same of the table, DuckDB", rate, "as pandas")

    def _show(self, flights: Flights) -> None:
        delays = Table(title=f"Delay by carrier and origin, the {ROWS_SHOWN} worst")
        for name in ("carrier", "origin"):
            delays.add_column(name)
        for name in ("flights", "departure, min", "arrival, min"):
            delays.add_column(name, justify="right")
        worst = sorted(flights.delays.items(), key=lambda item: -item[1][1])
        for (carrier, origin), (count, departure, arrival) in worst[:ROWS_SHOWN]:
            delays.add_row(carrier, origin, f"{count:,}", f"{departure:.1f}", f"{arrival:.1f}")
        rates = Table(title=f"{len(flights):,} flights, every answer checked")
        rates.add_column("step")
        rates.add_column("rate", justify="right")
        rates.add_column("checked")
        for row in self.results:
            rates.add_row(*row)
        self.console.print(delays, rates)
        self.console.print("\n[bold]A question in Python, without Spark:[/]")
        self.console.print(f"  {QUERY}", markup=False, highlight=False, soft_wrap=True)
        self.console.print("[bold]The same of the Iceberg table and what follows it in the log:[/]")
        self.console.print(f"  {VIEW}", markup=False, highlight=False, soft_wrap=True)

    async def _stay(self, servers: Servers) -> None:
        self.console.print("\n[bold]The servers stay up. Try, in another terminal:[/]")
        for command in suggestions(servers):
            self.console.print(f"  {command}", soft_wrap=True, highlight=False)
        self.console.print("Ctrl-C stops them.")
        await asyncio.Event().wait()

    def _result(self, step: str, rate: str, checked: str) -> None:
        self.results.append((step, rate, checked))

    def _progress(self) -> Progress:
        bar, count = BarColumn(), MofNCompleteColumn()
        name = TextColumn("{task.description:<10}")
        return Progress(name, bar, count, TimeElapsedColumn(), console=self.console)

    def _bar(self, progress: Progress, name: str, flights: Flights) -> Callable[[int], None]:
        task = progress.add_task(name, total=len(flights))
        return lambda count: progress.advance(task, count)


def suggestions(servers: Servers) -> list[str]:
    """Commands that work while the servers are up."""
    streamlog = ".venv/bin/streamlog"
    flight = '{"carrier": "XX", "origin": "JFK", "dep_delay": 1}'
    return [
        f"{streamlog} stream info {STREAM} --bootstrap-server {servers.kafka}",
        f"{streamlog} read {STREAM} --bootstrap-server {servers.kafka} --count 3",
        f"{streamlog} publish flights.JFK.XX '{flight}' --nats-server {servers.nats}",
        f"{streamlog} read {STREAM} --bootstrap-server {servers.kafka} --from latest --follow",
        f"{streamlog} cluster info --bootstrap-server {servers.kafka}",
        f"{streamlog} log verify {servers.data_dir}",
        f"kcat -b {servers.kafka} -t {STREAM} -C -c 3 -f '%o %h %s\\n'",
        f".venv/bin/python spark/jobs/delays.py --path {servers.data_dir}",
        f"curl -s {servers.http}/metrics | grep streamlog",
    ]
