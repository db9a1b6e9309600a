"""`python -m stream_dp`: the command line, as `stream-dp` is."""

from stream_dp.cli.start import start

if __name__ == "__main__":
    start()
