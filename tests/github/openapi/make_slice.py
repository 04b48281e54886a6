"""Cut what the tests use out of GitHub's own OpenAPI description, as plain JSON Schema.

    python make_slice.py node_modules/@octokit/openapi/generated/api.github.com.json > slice.json

The description is the npm package @octokit/openapi 23.0.2 (MIT, see LICENSE beside this file).  OpenAPI 3.0 writes
`nullable`; JSON Schema knows no such word, so it becomes a type.  Descriptions and examples are left out.
"""

import json
import sys

R = "/repos/{owner}/{repo}"
USED = {
    f"{R}/issues": ["get", "post"],
    f"{R}/issues/{{issue_number}}": ["get", "patch"],
    f"{R}/issues/{{issue_number}}/comments": ["get", "post"],
    f"{R}/issues/{{issue_number}}/events": ["get"],
    f"{R}/issues/comments/{{comment_id}}": ["patch"],
    f"{R}/labels": ["post"],
    f"{R}/labels/{{name}}": ["get", "patch", "delete"],
    f"{R}/collaborators/{{username}}/permission": ["get"],
    f"{R}/check-runs": ["post"],
    f"{R}/check-runs/{{check_run_id}}": ["patch"],
    f"{R}/pulls": ["get"],
    f"{R}/pulls/{{pull_number}}": ["get"],
    f"{R}/actions/artifacts/{{artifact_id}}/{{archive_format}}": ["get"],
    f"{R}/actions/runs/{{run_id}}/artifacts": ["get"],
    f"{R}/actions/workflows/{{workflow_id}}/runs": ["get"],
}
DROPPED = (
    "description",
    "example",
    "examples",
    "externalDocs",
    "title",
    "summary",
    "xml",
    "discriminator",
    "deprecated",
)


def plain(schema):
    """Return a schema without prose and with `nullable` said in JSON Schema's words."""
    if isinstance(schema, list):
        return [plain(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    made = {}
    for name, value in schema.items():
        if name == "properties":
            made[name] = {key: plain(item) for key, item in value.items()}
        elif name == "required" or name == "enum":
            made[name] = value
        elif name not in DROPPED and not name.startswith("x-") and name != "nullable":
            made[name] = plain(value)
    return {"anyOf": [made, {"type": "null"}]} if schema.get("nullable") else made


def main():
    with open(sys.argv[1]) as file:
        whole = json.load(file)
    components = whole["components"]

    def resolve(item):
        return components[item["$ref"].split("/")[2]][item["$ref"].split("/")[3]] if "$ref" in item else item

    def body_of(content):
        found = (content or {}).get("application/json", {}).get("schema")
        return plain(found) if found is not None else None

    operations = {}
    for path, methods in USED.items():
        for method in methods:
            operation = whole["paths"][path][method]
            given = [resolve(item) for item in operation.get("parameters", [])]
            operations[f"{method.upper()} {path}"] = {
                "query": {item["name"]: plain(item["schema"]) for item in given if item["in"] == "query"},
                "path": {item["name"]: plain(item["schema"]) for item in given if item["in"] == "path"},
                "request": body_of(resolve(operation.get("requestBody", {})).get("content")),
                "responses": {
                    status: body_of(resolve(answer).get("content")) for status, answer in operation["responses"].items()
                },
            }
    schemas, wanted = {}, [json.dumps(operations)]
    while wanted:
        text = wanted.pop()
        for name in {part.split('"')[0] for part in text.split("#/components/schemas/")[1:]}:
            if name not in schemas:
                schemas[name] = plain(components["schemas"][name])
                wanted.append(json.dumps(schemas[name]))
    made = {"source": "@octokit/openapi 23.0.2", "operations": operations, "components": {"schemas": schemas}}
    json.dump(made, sys.stdout, sort_keys=True, separators=(",", ":"))
    print()


if __name__ == "__main__":
    main()
