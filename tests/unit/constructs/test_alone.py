"""The constructs in a stack of a user's app without our feature flags make the same resources."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from sluice.constructs import feature_flags
from tests.support.templates.environments import ALONE, FULL
from tests.support.templates.resources import Resource, of_kind, template_resources
from tests.support.templates.synthesis import CONTEXT

# What nobody declared: a stack without account and region refers to them.
UNNAMED = {"<AWS::Partition>": "aws", "<AWS::Region>": FULL.region, "<AWS::AccountId>": str(FULL.account)}
OF_THE_APP = ("AWS::Lambda::Function",)  # CDK's own, whose code lies where the app puts its assets
NAMED_BY_THE_STACK = ("Description", "Tags", "BackupPlanTags", "BackupVaultTags")


@pytest.fixture(scope="session")
def alone(templates_folder: Path) -> list[Resource]:
    template = (templates_folder / ALONE / "Alone.template.json").read_text(encoding="utf-8")
    return template_resources("alone", json.loads(template))


def _count_resources(found: list[Resource]) -> Counter[tuple[str, str]]:
    """Return how often each resource exists, independent of logical ids and the order of lists."""
    return Counter(
        (resource.kind, json.dumps(_sort_lists(resource.properties), sort_keys=True))
        for resource in found
        if resource.kind not in OF_THE_APP
    )


def _sort_lists(value: Any) -> Any:
    match value:
        case str():
            for written, named in UNNAMED.items():
                value = value.replace(written, named)
        case dict():
            value = {key: _sort_lists(item) for key, item in value.items() if key not in NAMED_BY_THE_STACK}
        case list():
            value = sorted(map(_sort_lists, value), key=lambda item: json.dumps(item, sort_keys=True))
    return value


def test_all_of_an_environment_is_the_same_in_a_bare_app(alone: list[Resource], full: list[Resource]) -> None:
    """Every policy statement, queue, task definition and alarm of the environment that uses every option."""
    assert (
        _count_resources(alone) - _count_resources(full)
        == _count_resources(full) - _count_resources(alone)
        == Counter()
    )


def test_a_bare_apps_key_lets_sns_decrypt_for_the_topic_only(alone: list[Resource]) -> None:
    """Without a feature flag of CDK's, the key's policy would allow every topic of every account."""
    keys = of_kind(alone, "AWS::KMS::Key").values()
    statements = [statement for key in keys for statement in key["KeyPolicy"]["Statement"]]

    lets_in = [each for each in statements if each["Principal"].get("Service") == "sns.amazonaws.com"]
    assert len(lets_in) == 2  # the queues' key, and the archived topic's
    assert all("aws:SourceArn" in each["Condition"]["ArnEquals"] for each in lets_in)


def test_the_flags_are_those_of_our_own_app() -> None:
    assert {name: CONTEXT[name] for name in feature_flags.FLAGS} == dict.fromkeys(feature_flags.FLAGS, True)
