"""What is loaded for nothing: `--version`, `--help` and `import stream_dp` load nothing heavy, a command only its own.

Each is looked up in `sys.modules` of a child process, never timed.
"""

import subprocess
import sys
from pathlib import Path

import pytest

LIBRARIES = frozenset({
    "aiokafka", "cryptography", "dp_accounting", "fastapi", "faust", "jgo", "matplotlib", "mode", "msgspec", "numpy",
    "opentelemetry", "pandas", "polars", "prometheus_client", "pyarrow", "pydantic", "rich", "scipy", "starlette",
    "structlog", "uvicorn", "yaml",
})  # fmt: skip
FLIGHTS = str(Path("examples", "01_flights", "pipeline.yaml"))
NOBODY = "http://127.0.0.1:9"  # the discard port: no engine answers there

NOT_AWAITED = "import stream_dp.operate.query.remote_series as a\na.WAIT_S = 0\n"
RUN = "from stream_dp.cli.main import code_of\ncode_of(sys.argv[1:])\n"
SHOW = "sys.stdout.write('\\n' + ' '.join(sys.modules))"


def loaded(root: Path, code: str, *arguments: str) -> set[str]:
    """Return what a child has loaded after `code`: of stream_dp every module, of others the libraries' names."""
    command = [sys.executable, "-c", f"import sys\n{code}\n{SHOW}", *arguments]
    result = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True)
    found = set(result.stdout.splitlines()[-1].split())
    ours = {name for name in found if name.partition(".")[0] == "stream_dp"}
    return ours | ({name.partition(".")[0] for name in found} & LIBRARIES)


def floors(found: set[str]) -> set[str]:
    """Return the packages of stream_dp among what was loaded."""
    return {name.split(".")[1] for name in found if name.count(".") > 1}


def test_importing_the_package_loads_nothing(root: Path) -> None:
    assert loaded(root, "import stream_dp") & LIBRARIES == set()
    assert floors(loaded(root, "import stream_dp")) == set()


def test_a_client_loads_no_server_and_no_frames(root: Path) -> None:
    found = loaded(root, "import stream_dp\nstream_dp.connect, stream_dp.ReleaseTable")
    assert found & LIBRARIES <= {"cryptography", "msgspec", "numpy", "pydantic", "yaml"}
    assert floors(found) & {"operate", "kafka", "verify", "statistics"} == set()


@pytest.mark.parametrize("option", ["--version", "--help"])
def test_the_command_line_alone_loads_no_command(root: Path, option: str) -> None:
    found = loaded(root, RUN, option)
    assert found & LIBRARIES == set()
    assert floors(found) == {"cli"}
    assert "stream_dp.cli.commands.plan" not in found


@pytest.mark.parametrize(
    "broken",
    [
        "import stream_dp.cli.commands.plan",
        "from stream_dp.cli.main import Commands\n[Commands().get_command(None, name) for name in Commands.table]",
    ],
)
def test_what_is_loaded_too_early_is_found(root: Path, broken: str) -> None:
    assert loaded(root, f"{broken}\n{RUN}", "--version") & LIBRARIES != set()


@pytest.mark.parametrize(
    ("arguments", "unused"),
    [
        (
            ("query", "list", FLIGHTS, "--url", NOBODY),
            LIBRARIES - {"msgspec", "numpy", "pydantic", "rich", "yaml"},
        ),
        (("plan", FLIGHTS), {"aiokafka", "dp_accounting", "fastapi", "jgo", "pyarrow", "scipy"}),
        (
            ("run", "nowhere.yaml"),
            {
                "aiokafka",
                "dp_accounting",
                "fastapi",
                "opentelemetry",
                "prometheus_client",
                "pyarrow",
                "scipy",
            },
        ),
    ],
    ids=["query list", "plan", "run"],
)
def test_a_command_loads_what_it_uses(
    root: Path, arguments: tuple[str, ...], unused: set[str]
) -> None:
    found = loaded(root, NOT_AWAITED + RUN, *arguments)
    assert found & (set(unused) | {"starlette", "uvicorn"}) == set()
    assert "verify" not in floors(found)


def test_a_command_that_loads_too_much_is_found(root: Path) -> None:
    found = loaded(root, f"import stream_dp.operate.audit.attack\n{RUN}", "--version")
    assert "verify" in floors(found)
