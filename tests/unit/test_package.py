"""The package: what a model may fill, what is stored, what is read."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from langgraph_handoff import HandoffPackage
from langgraph_handoff.errors import PackageError, PackageTooLargeError, UnsupportedSchemaVersionError
from langgraph_handoff.package import ENVELOPE, Evidence

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
contents = st.fixed_dictionaries(
    {},
    optional={
        "reason": st.text(max_size=20),
        "goal": st.text(max_size=20),
        "summary": st.text(max_size=20),
        "known_facts": st.dictionaries(st.text(max_size=5), json_values, max_size=4),
        "constraints": st.lists(st.text(max_size=8), max_size=3),
        "completed_actions": st.lists(st.text(max_size=8), max_size=3),
        "open_questions": st.lists(st.text(max_size=8), max_size=3),
        "artifacts": st.dictionaries(st.text(max_size=5), json_values, max_size=3),
        "evidence": st.lists(st.fixed_dictionaries({"source": st.text(max_size=5)}), max_size=2),
        "requested_action": st.sampled_from(["review", "continue", "approve", "execute"]),
    },
)


class Refund(HandoffPackage):
    """A refund, in its second major version."""

    major: ClassVar[int] = 2
    upcasts: ClassVar[Any] = {1: lambda old: {**{k: v for k, v in old.items() if k != "sum"}, "amount": old["sum"]}}

    order_id: str
    amount: Decimal
    due: datetime | None = None


@given(contents)
def test_a_package_survives_its_stored_form(content: dict[str, Any]) -> None:
    """What is stored and read again is the same package, and storing it again gives the same data."""
    package = HandoffPackage.from_content(content, from_agent="a", to_agent="b", hop=3)
    assert HandoffPackage.load(package.dump()) == package
    assert HandoffPackage.load(package.dump()).dump() == package.dump()


@given(contents, st.decimals(allow_nan=False, allow_infinity=False), st.none() | st.datetimes())
def test_a_typed_package_survives_its_stored_form(content: dict[str, Any], amount: Decimal, due: datetime | None) -> None:
    """A subclass with decimals and dates comes back as itself."""
    package = Refund.from_content({**content, "order_id": "A", "amount": amount, "due": due}, from_agent="a", to_agent="b")
    again = Refund.load(package.dump())
    assert again == package
    assert isinstance(again.amount, Decimal)


@given(contents)
def test_nothing_of_a_package_is_missing_in_its_brief(content: dict[str, Any]) -> None:
    """Every text that the sender gave stands in the brief."""
    brief = HandoffPackage.from_content(content, from_agent="a", to_agent="b").brief()
    for field in ("reason", "goal", "summary"):
        assert content.get(field, "") in brief
    for field in ("constraints", "completed_actions", "open_questions"):
        for text in content.get(field, []):
            assert text in brief


def test_an_older_major_version_is_brought_up() -> None:
    """A package that an older release stored is read through its upcast."""
    old = {"schema_version": "1.0", "package_type": "Refund", "order_id": "A", "sum": "2.50"}
    assert Refund.load(old).amount == Decimal("2.50")
    assert Refund.load(old).dump()["schema_version"] == "2.0"


@pytest.mark.parametrize("version", ["3.0", "0.1", "x", "99"])
def test_an_unknown_major_version_is_named(version: str) -> None:
    """A major version without a way to it is an error that names class, version and what is read here."""
    with pytest.raises(UnsupportedSchemaVersionError) as raised:
        Refund.load({"schema_version": version, "order_id": "A", "amount": "1"})
    assert str(raised.value) == (
        f"The stored package `Refund` has schema version {version}; this code reads 2.x. "
        "Install the release that wrote it, or add an upcast for its major version."
    )


@pytest.mark.parametrize("field", sorted(ENVELOPE))
def test_content_cannot_set_the_envelope(field: str) -> None:
    """No field of the envelope can be given as content, and none is in the tool's schema."""
    with pytest.raises(PackageError, match=f"only the runtime sets {field}"):
        HandoffPackage.from_content({field: "x"})
    assert field not in HandoffPackage.content_schema("t").model_json_schema()["properties"]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ({"nobody": 1}, "nobody: Extra inputs are not permitted"),
        ({"reason": 5}, "reason: Input should be a valid string"),
        ({"known_facts": "x"}, "known_facts: Input should be a valid dictionary"),
        ({"requested_action": "destroy"}, "requested_action: Input should be 'review', 'continue', 'approve' or 'execute'"),
        ({"evidence": [{}]}, "evidence.0.source: Field required"),
    ],
)
def test_a_wrong_field_is_named(content: dict[str, Any], said: str) -> None:
    """Each wrong field is named with what is wrong, without its value."""
    with pytest.raises(PackageError) as raised:
        HandoffPackage.from_content(content)
    assert str(raised.value) == (
        f"The handoff package is not valid: {said}. Correct the named fields and send the package again."
    )


@pytest.mark.parametrize(("size", "fits"), [(10, True), (1000, False)])
def test_a_package_has_a_largest_size(size: int, fits: bool) -> None:
    """Above the cap a package is refused with its size, the cap and what to do."""
    content = {"known_facts": {"x": "y" * size}}
    if fits:
        HandoffPackage.from_content(content, max_bytes=1000)
        return
    with pytest.raises(PackageTooLargeError, match=r"the cap is 1000. Move large content into a store"):
        HandoffPackage.from_content(content, max_bytes=1000)


def test_a_package_is_frozen() -> None:
    """A package cannot be changed after it was made."""
    package = HandoffPackage(reason="r")
    with pytest.raises(ValidationError):
        package.reason = "other"
    with pytest.raises(ValidationError):
        Evidence(source="s", other="x")  # type: ignore[call-arg]


def test_the_tool_s_schema_can_fix_the_action() -> None:
    """An edge with one action takes it out of the schema, one with several limits it."""
    assert "requested_action" not in HandoffPackage.content_schema("t", actions=("review",)).model_fields
    some = HandoffPackage.content_schema("t", actions=("review", "approve"))
    assert some().model_dump()["requested_action"] == "review"
    with pytest.raises(ValidationError):
        some(requested_action="execute")
