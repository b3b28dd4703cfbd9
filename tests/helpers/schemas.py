"""JSON documents against their schemas, drstream/schemas, and more strictly: no key may be missing in the schema."""

import functools
import json
from importlib import resources

from jsonschema import Draft202012Validator


def schema(name):
    return json.loads((resources.files("drstream") / "schemas" / f"{name}.json").read_text())


@functools.cache
def validator(name):
    Draft202012Validator.check_schema(schema(name))
    return Draft202012Validator(closed(schema(name)))


def closed(part):
    """The schema without keys that it does not list, but where it says so itself."""
    if isinstance(part, list):
        return [closed(one) for one in part]
    if not isinstance(part, dict):
        return part
    found = {key: closed(value) for key, value in part.items()}
    return found if "properties" not in found else {"additionalProperties": False, **found}


def check(document):
    name, _, version = document["schema"].removeprefix("drstream.").partition("/")
    assert int(version) >= 1
    validator(name).validate(document)
    return name
