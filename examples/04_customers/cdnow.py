"""The purchases of CDNOW's customers, as the PyPI package Lifetimes has them in a file.

Rules: the file is found where the package is installed, or in one that is installed beside for this alone; of the
package nothing is imported or run. Its data's licence is not stated, so they are not shipped here.
"""

import subprocess
import sys
from dataclasses import dataclass
from datetime import date
from importlib.util import find_spec
from pathlib import Path

PACKAGE, MEMBER = "Lifetimes==0.11.3", Path("lifetimes", "datasets", "CDNOW_master.txt")
START = date(1997, 1, 1)  # as in pipeline.yaml


@dataclass(frozen=True, slots=True)
class Purchase:
    """Who bought for how much, on which day."""

    day: date
    customer: int
    amount: float

    @property
    def week(self) -> int:
        """The tick that it counts in."""
        return (self.day - START).days // 7


def found(given: Path | None, folder: Path) -> Path:
    """Return where the purchases are: as given, in an installed package, or in one that is installed in the folder."""
    installed = find_spec("lifetimes")
    beside = None if installed is None else Path(installed.origin or "").parent.parent / MEMBER
    own = folder / "package"
    for place in (given, beside, own / MEMBER):
        if place is not None and place.is_file():
            return place
    if given is not None:
        raise SystemExit(f"{given} is not there")
    print(f"Installing {PACKAGE} into {own}: its data are read, nothing of it is run")
    command = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--disable-pip-version-check",
    ]
    if subprocess.run([*command, "--target", str(own), PACKAGE], check=False).returncode:  # noqa: S603 - as it stands
        raise SystemExit(
            f"{PACKAGE} could not be installed. Where there is a network:\n"
            f"  {sys.executable} -m pip install --no-deps {PACKAGE}\n"
            "or bring its file datasets/CDNOW_master.txt here, and name it: --data CDNOW_master.txt"
        )
    return own / MEMBER


def purchases(path: Path) -> list[Purchase]:
    """Read the package's file: lines of customer, day, number of CDs and dollars; by day."""
    _, *lines = path.read_text(encoding="ascii").splitlines()
    cells = [line.split() for line in lines if line.strip()]
    made = [
        Purchase(date.fromisoformat(day), int(who), float(dollars))
        for who, day, _, dollars in cells
    ]
    return sorted(made, key=lambda each: each.day)
