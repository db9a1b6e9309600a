"""The image's command and health check, with this environment's stream-dp in place of the image's.

The image itself, step by step, is in test_image_build.py, which takes minutes.
"""

import http.server
import os
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from deploy.deploy_files import DEPLOY
from deploy.image_life import furnish, lives
from deploy.image_steps import steps, words
from free_ports import free_port

SCRIPT = DEPLOY / "healthz.py"
KNOWN = dict(steps((DEPLOY / "Dockerfile").read_text()))


@pytest.fixture
def own(tmp_path: Path) -> dict[str, str]:
    furnish(tmp_path / "etc", tmp_path / "state", tmp_path / "secrets" / "key")
    bins = tmp_path / "bin"
    bins.mkdir()
    (bins / "python").symlink_to(sys.executable)
    shutil.copy(Path(sys.executable).parent / "stream-dp", bins)
    return {
        **os.environ,
        "PATH": f"{bins}:/usr/bin:/bin",
        "STREAM_DP_HOME": str(tmp_path / "state"),
        "STREAM_DP_KEY_FILE": str(tmp_path / "secrets" / "key"),
    }


def test_it_starts_answers_and_ends(own: dict[str, str], tmp_path: Path) -> None:
    entry, command = words(KNOWN["ENTRYPOINT"]), words(KNOWN["CMD"])
    check = words(KNOWN["HEALTHCHECK"].partition("CMD ")[2])
    assert entry is not None
    assert command is not None
    assert check == ["python", "/opt/stream-dp/healthz.py"]
    port = str(free_port())

    def begin(line: Sequence[str]) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            list(line), cwd=tmp_path / "etc", env=own, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip

    before = sorted(path.name for path in (tmp_path / "etc").iterdir())
    healthcheck = ["python", str(SCRIPT), port]
    assert lives([*entry, *command, "--port", port], healthcheck, begin) == ""
    assert sorted(path.name for path in (tmp_path / "etc").iterdir()) == before
    wrong = lives([*entry, "run", "nothing.yaml", "--port", port], healthcheck, begin)
    assert "it never answered" in wrong


def asked(port: int, *options: str) -> int:
    command = [sys.executable, str(SCRIPT), str(port), *options]
    return subprocess.run(command, check=False, capture_output=True).returncode


@contextmanager
def answering(status: int) -> Iterator[int]:
    class Answer(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status if self.path == "/healthz" else 404)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - theirs
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Answer) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()


def test_who_does_not_listen_yet_is_well_and_not_ready() -> None:
    port = free_port()
    assert (asked(port), asked(port, "--ready")) == (0, 1)


@pytest.mark.parametrize(("status", "code"), [(200, 0), (500, 1), (421, 1)])
def test_who_listens_must_answer(status: int, code: int) -> None:
    with answering(status) as port:
        assert (asked(port), asked(port, "--ready")) == (code, code)


def test_who_listens_and_hangs_up_is_ill() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def hang_up() -> None:
            server.accept()[0].close()

        thread = threading.Thread(target=hang_up)
        thread.start()
        assert asked(server.getsockname()[1]) == 1
        thread.join()
