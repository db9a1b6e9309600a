"""Ends an app whose engine or stream must not go on, with the true cause and its exit code.

Rules: Faust restarts an agent that raises, so an error that must stop the app is passed to the app itself. The text
of our own errors is logged, because it contains no content; of any other error only its type, because libraries put
data into their texts. The error is logged without its traceback.
"""

from mode import Service

from stream_dp.errors import StreamDPError


class EngineStopped(SystemExit):
    """The reason why the app ended, in `error`; a worker's process exits with the command line's exit code."""

    def __init__(self, error: StreamDPError) -> None:
        super().__init__(error.exit_code)
        self.error = error

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.error})"

    def __str__(self) -> str:
        return str(self.error)


def told(error: BaseException) -> StreamDPError:
    """Return our own errors unchanged, and for any other an error with its type but not its text."""
    if isinstance(error, StreamDPError):
        return error
    return StreamDPError(
        f"a bug of stream_dp, or of the app's own code ({type(error).__name__}); its text may hold data, so it is not "
        "repeated here"
    )


async def stop_app(service: Service, error: BaseException) -> None:
    """End the app of this service, and everything in it; the first cause counts."""
    reason = EngineStopped(told(error))
    reason.__suppress_context__ = True
    await service.crash(reason)
