"""Ask the engine in this container whether it is well: exit code 0, or 1 where it listens and does not answer.

Usage: healthz.py [PORT] [--ready]. Rules: an engine listens once it is ready. One that reads its journal, and a
standby, do not, and are well: who ended them would begin the reading anew. With --ready nothing but an answer counts.
"""

import http.client
import sys

PORT = 8765
SECONDS = 8


def well(port: int, *, ready: bool) -> bool:
    """Whether /healthz answers, or nobody listens there yet."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=SECONDS)
    try:
        connection.request("GET", "/healthz")
        return connection.getresponse().status == http.HTTPStatus.OK
    except ConnectionRefusedError:
        return not ready
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


if __name__ == "__main__":
    ports = [int(word) for word in sys.argv[1:] if word != "--ready"] or [PORT]
    sys.exit(0 if well(ports[0], ready="--ready" in sys.argv) else 1)
