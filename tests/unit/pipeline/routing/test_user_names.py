"""The names of users as text: no two of them are made one, for those would share a cap, and length is in bytes."""

from stream_dp.pipeline.user_homes import LONGEST_NAME, UserNames


def test_every_name_is_its_own_text() -> None:
    names = [
        "ann",
        "Ann",
        " ann",
        "ann ",
        "",
        "é",
        "e\N{COMBINING ACUTE ACCENT}",
        "\0",
        "\0\0",
        "07",
    ]
    found = UserNames.of(names)
    assert found.texts == [name.encode() for name in names]
    assert not found.long.any()
    assert UserNames.of([7, -7, 0]).texts == [b"7", b"-7", b"0"]


def test_a_name_is_too_long_by_its_bytes() -> None:
    longest = "é" * (LONGEST_NAME // 2)
    found = UserNames.of([longest, longest + "a", "b"])
    assert found.texts == [longest.encode(), b"", b"b"]
    assert found.long.tolist() == [False, True, False]
