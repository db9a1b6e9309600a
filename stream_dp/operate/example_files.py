"""The folder of the shipped example.

Rules: the folder of a checkout comes first, then the folder where the wheel put the files. There is one original,
`examples/01_flights` in the repository; this module copies nothing.
"""

from importlib.metadata import PackageNotFoundError, files
from pathlib import Path

from stream_dp.errors import WorldError

FOLDER = Path("examples", "01_flights")
DATA = "flights.csv.gz"


def flights_folder() -> Path:
    """Return the folder with `pipeline.yaml` and `flights.csv.gz` of the flights example."""
    beside = Path(__file__).resolve().parents[2]
    for folder in (beside / FOLDER, beside / "share" / "stream_dp" / FOLDER, _recorded()):
        if folder is not None and (folder / DATA).is_file():
            return folder
    raise WorldError(
        f"the example's file {FOLDER / DATA} is missing from this installation; "
        "install stream_dp again, or run from a checkout"
    )


def _recorded() -> Path | None:
    """Return the folder that the installer's record names, or None."""
    try:
        recorded = files("stream_dp") or []
    except PackageNotFoundError:
        return None
    found = (Path(str(file.locate())) for file in recorded if file.name == DATA)
    return next((path.resolve().parent for path in found), None)
