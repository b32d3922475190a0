"""Errors of a document are shown at their lines, in whatever state the text is."""

from common.errors import FieldError
from console.pages.document_lines import errors_place

TEXT = """{
  "metadata": {"name": "a"},
  "spec": {
    "task_template": {
      "env": {
        "a.b": "1"
      },
      "args": [
        "-c",
        7
      ]
    }
  }
}"""


def place(path, text=TEXT, code="wrong", message="It is wrong."):
    [placed] = errors_place(text, (FieldError(path, code, message),))
    return placed.line, placed.excerpt


def test_a_field_is_found_at_its_line():
    assert place("metadata.name") == (2, '"metadata": {"name": "a"},')


def test_an_item_of_a_list_is_found_at_its_own_line():
    assert place("spec.task_template.args[1]") == (10, "7")


def test_a_key_that_is_no_plain_word_is_found():
    assert place('spec.task_template.env["a.b"]') == (6, '"a.b": "1"')


def test_what_is_missing_is_told_where_it_is_missing():
    assert place("spec.task_template.image") == (4, '"task_template": {')


def test_an_error_of_the_whole_document_stands_at_its_first_line():
    assert place("") == (1, "{")


def test_broken_json_is_told_at_the_line_that_the_parser_names():
    broken = '{\n  "metadata": {}\n  "spec": {}\n}'
    message = "This is not JSON: Expecting ',' delimiter in line 3, column 3."
    assert place("", broken, "not_json", message) == (3, '"spec": {}')


def test_an_empty_text_has_a_first_line():
    assert place("", "", "not_json", "The document is empty.") == (1, "")


def test_errors_come_in_the_order_of_their_lines():
    errors = (FieldError("spec.task_template.args[1]", "a", "x"), FieldError("metadata.name", "b", "y"))
    assert [each.line for each in errors_place(TEXT, errors)] == [2, 10]


def test_a_line_that_never_ends_is_shown_in_part():
    line, excerpt = place("a", '{"a": "' + "x" * 5000 + '"}')
    assert (line, len(excerpt)) == (1, 120)


def test_deep_nesting_is_walked_without_recursion():
    assert place("a", '{"a": ' + "[" * 100_000)[0] == 1
