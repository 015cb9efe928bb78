# SPDX-License-Identifier: Apache-2.0
"""Every statement of the checklist is shown by a test that exists, or is an exception with a reason."""

from __future__ import annotations

from tests.server import checklist


def test_every_statement_is_shown_or_excepted():
    lists = [checklist.statements(which) for which in checklist.LISTS]
    assert [len(one) for one in lists] == [216, 108, 51]
    statements, shown = lists[0] | lists[1] | lists[2], checklist.marked()
    assert len(statements) == 216 + 108 + 51
    assert not set(shown) - set(statements)
    missing = set(statements) - set(shown) - set(checklist.SERVER) - set(checklist.EXCEPTIONS)
    assert not missing
    assert not set(checklist.EXCEPTIONS) & (set(shown) | set(checklist.SERVER))


def test_tests_of_the_server_exist():
    for name in checklist.SERVER.values():
        file, function = name.split("::")
        assert f"def {function}(" in (checklist.HERE / file).read_text(encoding="utf-8")


def test_the_page_has_the_tables():
    text = checklist.PAGE.read_text(encoding="utf-8")
    assert all(checklist.begin(which) in text for which in checklist.LISTS)
    assert checklist.written(text) == text, "python -m tests.server.checklist writes it anew"
