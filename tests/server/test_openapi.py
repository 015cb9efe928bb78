# SPDX-License-Identifier: Apache-2.0
"""The server keeps what its OpenAPI promises, whatever it is asked."""

from __future__ import annotations

import json

import pytest
from hypothesis import given

from tests.build import examples
from tests.waiting import HANG

schemathesis = pytest.importorskip("schemathesis", reason="schemathesis is not installed")
from schemathesis.checks import not_a_server_error  # noqa: E402
from schemathesis.specs.openapi.checks import (  # noqa: E402
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

CHECKS = (not_a_server_error, content_type_conformance, response_schema_conformance, status_code_conformance)


def test_every_route_is_documented(client):
    found = client.json("/api/openapi.json")
    for path, methods in found["paths"].items():
        for method, operation in methods.items():
            assert operation["description"], (method, path)
            answer = operation["responses"]["202" if method == "post" else "200"]
            assert answer["content"], (method, path)
            for parameter in operation.get("parameters", ()):
                schema = json.dumps(parameter["schema"])
                kinds = ("maxLength", "maximum", "enum", "const", "pattern", "boolean")
                assert any(kind in schema for kind in kinds), (path, parameter["name"])


@pytest.mark.long
def test_what_is_promised_is_kept(client):
    schema = schemathesis.openapi.from_dict(client.json("/api/openapi.json"))
    schema.config.update(base_url=client.url)
    wrong = []
    for result in schema.get_all_operations():
        operation = result.ok()
        if operation.path.endswith("/events"):  # a stream: see test_jobs
            continue

        @examples(8)
        @given(case=operation.as_strategy())
        def check(case):
            answer = case.call(headers={"X-PyProf": "1"}, timeout=HANG)
            if answer.status_code == 503 and answer.json()["type"] == "busy":  # many aggregations at once
                return
            case.validate_response(answer, checks=CHECKS)

        try:
            check()
        except Exception as error:  # all of them, not the first alone
            wrong.append(f"{operation.method} {operation.path}: {error}")
    assert not wrong, "\n".join(wrong)[:4000]


@pytest.mark.parametrize(
    ("path", "methods"),
    [("jobs/x", "DELETE, GET"), ("jobs", "GET"), ("aggregations", "POST"), ("details/op/a/b", "GET")],
)
def test_a_method_that_a_path_does_not_have(client, path, methods):
    found = client.http.request("OPTIONS", f"/api/{path}")
    assert (found.status_code, found.headers["allow"].replace(", HEAD", "")) == (405, methods)
