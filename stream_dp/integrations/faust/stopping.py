"""The end of an app whose engine, or whose stream, must not go on: with the true cause, and its exit code.

Rules: an agent that raises is started again by Faust, so an error that must stop is handed to the app itself. What
is logged is the text of our errors, which carry no content; of any other error its type alone, for libraries put data
into their texts. The error is logged without its traceback.
"""

from mode import Service

from stream_dp.errors import StreamDPError


class EngineStopped(SystemExit):
    """Why the app ended: `error` says it; a worker's process exits with the code of the command line."""

    def __init__(self, error: StreamDPError) -> None:
        super().__init__(error.exit_code)
        self.error = error

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.error})"

    def __str__(self) -> str:
        return str(self.error)


def told(error: BaseException) -> StreamDPError:
    """The error itself where it is ours; else one that names its type, and nothing of its text."""
    if isinstance(error, StreamDPError):
        return error
    return StreamDPError(
        f"a bug of stream_dp, or of the app's own code ({type(error).__name__}); its text may hold data, so it is not "
        "repeated here"
    )


async def stop_app(service: Service, error: BaseException) -> None:
    """End the app to which this service belongs, and all beside it; the first cause counts."""
    reason = EngineStopped(told(error))
    reason.__suppress_context__ = True
    await service.crash(reason)
