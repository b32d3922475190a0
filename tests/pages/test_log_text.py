"""A log's bytes as lines of a page: hostile input becomes harmless text."""

from console.pages.log_text import log_lines


def texts(data):
    return [line.text for line in log_lines(data)]


def test_lines_keep_their_text():
    assert texts(b"one\n\n  three\n") == ["one", "", "  three"]


def test_a_line_without_an_end_is_a_line_too():
    assert texts(b"one\ntwo") == ["one", "two"]


def test_sequences_are_dropped():
    assert texts(b"\x1b[1;31mred\x1b[0m \x1b]0;title\x07plain \x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\") == [
        "red plain link"
    ]


def test_overwritten_text_folds_to_its_last_state():
    assert texts(b"10%\r50%\r100%\r\nnext\n") == ["100%", "next"]


def test_control_and_direction_characters_become_marks():
    assert texts("a\x07b\x9bc\u202ed\te".encode()) == ["a\u2407b\ufffdc⟨U+202E⟩d\te"]


def test_bytes_that_are_no_text_do_not_stop_the_page():
    assert texts(b"\xff\xfeab") == ["\ufffd\ufffdab"]


def test_errors_are_marked():
    marked = [
        b"Traceback (most recent call last):",
        b"RuntimeError: CUDA error: out of memory",
        b"gpu-01 NCCL WARN NET/IB : No device found",
        b"Killed",
    ]
    assert [line.error for line in log_lines(b"\n".join(marked))] == [True] * 4
    assert [line.error for line in log_lines(b"step 1 loss 2\nerrors: 0\nINFO skilled\n")] == [False] * 3


def test_a_line_of_megabytes_is_cut():
    [line] = log_lines(b"x" * 3_000_000)
    assert len(line.text) == 4000
