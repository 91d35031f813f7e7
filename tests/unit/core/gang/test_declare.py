"""Every way to declare a gang, which of them counts, and what is refused or complained about."""

from __future__ import annotations

import json

import msgspec
import pytest

from kit.podgangs import SIGS
from kit.words import in_words
from muster.core.gang.declare import (
    DEFAULT_TIMEOUT_MS,
    Declared,
    GangCounts,
    declare,
    duration_ms,
    incomplete,
    missing,
    priority_clash,
    read_pod_group,
    satisfied,
)
from muster.core.objects.meta import UnreadableError
from muster.model.gang import PodGroup

KO = "gang.scheduling.koordinator.sh"


def group(name: str = "nginx", minimum: int = 3, timeout_s: int = 0, **annotations: str) -> PodGroup:
    raw = {
        "metadata": {"name": name, "namespace": "ns", "uid": f"uid-{name}", "resourceVersion": "1"},
        "spec": {"minMember": minimum, "scheduleTimeoutSeconds": timeout_s, "minResources": {"cpu": "1"}},
    }
    raw["metadata"]["annotations"] = {key.replace("__", "/"): text for key, text in annotations.items()}
    return read_pod_group(json.dumps(raw).encode())


def said(labels: dict[str, str], annotations: dict[str, str] | None = None, of: PodGroup | None = None) -> Declared:
    found = declare("ns", labels, annotations or {}, of)
    assert found is not None
    return found


# --- the three ways -----------------------------------------------------------------------------------------------


def test_a_pod_that_names_no_gang_is_of_none() -> None:
    assert declare("ns", {"app": "x"}, {f"{KO}/min-available": "2"}) is None


def test_by_labels() -> None:
    found = said({f"{SIGS}/name": "tf-smoke-gpu", f"{SIGS}/min-available": "3"})
    expected = Declared(gang="ns/tf-smoke-gpu", way="labels", minimum=3, group=("ns/tf-smoke-gpu",))
    assert found == expected


def test_by_annotations() -> None:
    extras = {f"{KO}/total-number": "9", f"{KO}/mode": "NonStrict"}
    found = said({}, {f"{KO}/name": "gang-example", f"{KO}/min-available": "2"} | extras)
    assert (found.gang, found.way, found.minimum, found.complaints) == ("ns/gang-example", "annotations", 2, ())


def test_the_longest_name_is_whole() -> None:
    """Two gangs whose names differ in the last character are two."""
    names = ["a" * 252 + end for end in "bc"]
    assert [said({}, {f"{KO}/name": name, f"{KO}/min-available": "3"}).gang for name in names] == [
        f"ns/{name}" for name in names
    ]


@pytest.mark.parametrize("label", [SIGS, f"{SIGS}/name", "scheduling.x-k8s.io/pod-group"])
def test_by_pod_group(label: str) -> None:
    found = said({label: "nginx"}, of=group(timeout_s=10))
    assert (found.way, found.minimum, found.timeout_ms, found.refusal) == ("pod_group", 3, 10_000, None)


# --- which counts -------------------------------------------------------------------------------------------------

NAMES = {SIGS: "a", f"{SIGS}/name": "b", "scheduling.x-k8s.io/pod-group": "c"}


@pytest.mark.parametrize(("without", "expected"), [(0, "ns/a"), (1, "ns/b"), (2, "ns/c"), (3, "ns/d")])
def test_the_name_by_precedence(without: int, expected: str) -> None:
    labels = dict(list(NAMES.items())[without:])
    assert said(labels, {f"{KO}/name": "d"}).gang == expected


def test_the_minimum_of_a_pod_group_beats_what_pods_say() -> None:
    labels = {f"{SIGS}/name": "nginx", f"{SIGS}/min-available": "7"}
    annotations = {f"{KO}/min-available": "8"}
    assert said(labels, annotations).minimum == 7
    assert said({f"{SIGS}/name": "nginx"}, annotations).minimum == 8
    assert said(labels, annotations, group(minimum=3)).minimum == 3
    assert said({f"{SIGS}/name": "nginx", f"{SIGS}/min-available": "x"}, {}, group()).refusal is None


@pytest.mark.parametrize(
    ("timeout_s", "annotations", "expected"),
    [
        (10, {f"{KO}/waiting-time": "30s"}, 10_000),
        (0, {f"{KO}/waiting-time": "1m30s"}, 90_000),
        (0, {}, DEFAULT_TIMEOUT_MS),
        (86_400, {}, 86_400_000),
    ],
)
def test_the_time_of_an_attempt(timeout_s: int, annotations: dict[str, str], expected: int) -> None:
    found = said({f"{SIGS}/name": "nginx"}, annotations, group(timeout_s=timeout_s))
    assert (found.timeout_ms, found.complaints) == (expected, ())


# --- what is refused ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["x", "0", "-1", "1.5", "", " 3", "3 ", "2147483648", "99999999999", "٣", "0x3"])
@pytest.mark.parametrize("by", ["labels", "annotations"])
def test_a_bad_minimum_is_refused_by_its_key(text: str, by: str) -> None:
    if by == "labels":
        found = said({f"{SIGS}/name": "a", f"{SIGS}/min-available": text})
    else:
        found = said({}, {f"{KO}/name": "a", f"{KO}/min-available": text})
    assert "min-available: " in in_words(found.refusal) and in_words(found.refusal).endswith(
        "is not a count of 1 or more"
    )
    assert found.minimum == 0


def test_a_gang_without_any_minimum_says_what_to_set() -> None:
    assert in_words(said({f"{SIGS}/name": "a"}).refusal) == (
        "nothing says how many pods gang ns/a takes: set pod-group.scheduling.sigs.k8s.io/min-available, "
        "or create a PodGroup of that name"
    )


@pytest.mark.parametrize("name", ["Upper", "under_score", "-a", "a" * 64, "a..b", "a\u202eb"])
def test_a_bad_name_is_refused(name: str) -> None:
    found = said({f"{SIGS}/name": name, f"{SIGS}/min-available": "2"})
    assert in_words(found.refusal).startswith(f"{SIGS}/name: ")
    assert "\u202e" not in found.gang + in_words(found.refusal)


@pytest.mark.parametrize("minimum", [0, -3])
def test_a_pod_group_needs_a_minimum(minimum: int) -> None:
    refusal = said({SIGS: "nginx"}, of=group(minimum=minimum)).refusal
    assert in_words(refusal) == f"spec.minMember: PodGroup ns/nginx says {minimum}; write 1 or more"


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ({"minMember": "3"}, "spec.minMember: expected int | null, got str"),
        ({"minMember": 2**31}, "spec.minMember: expected `int` <= 2147483647"),
        ({"minMember": 1.5}, "spec.minMember: expected int | null, got float"),
        ({"scheduleTimeoutSeconds": "10s"}, "spec.scheduleTimeoutSeconds: expected int | null, got str"),
        (5, "spec: expected object | null, got int"),
    ],
)
def test_a_pod_group_that_cannot_be_read_names_the_field(spec: object, problem: str) -> None:
    raw = {"metadata": {"name": "a", "namespace": "ns", "uid": "u", "resourceVersion": "1"}, "spec": spec}
    with pytest.raises(UnreadableError) as caught:
        read_pod_group(msgspec.json.encode(raw))
    assert in_words(caught.value.problem).startswith(problem.replace("`", ""))


# --- what is complained about -------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["once-satisfied", "only-waiting", "waiting-and-running", "waiting-running-succeed"])
def test_match_policies_by_label_and_on_the_pod_group(policy: str) -> None:
    labels = {f"{SIGS}/name": "nginx", f"{SIGS}/min-available": "3"}
    assert said(labels | {f"{SIGS}/match-policy": policy}).policy == policy
    on_group = group(**{f"{KO.replace('/', '__')}__match-policy": policy})
    found = said(labels | {f"{SIGS}/match-policy": "only-waiting"}, of=on_group)
    assert (found.policy, found.complaints) == (policy, ())


def test_an_unknown_match_policy_counts_as_not_said_and_is_told() -> None:
    labels = {f"{SIGS}/name": "a", f"{SIGS}/min-available": "3", f"{SIGS}/match-policy": "sometimes"}
    found = said(labels)
    assert (found.policy, found.refusal) == ("once-satisfied", None)
    assert tuple(map(in_words, found.complaints)) == (
        "pod-group.scheduling.sigs.k8s.io/match-policy: 'sometimes' is none of once-satisfied, only-waiting, "
        "waiting-and-running, waiting-running-succeed; once-satisfied is used",
    )


def test_annotated_gangs_know_one_match_policy() -> None:
    annotations = {f"{KO}/name": "a", f"{KO}/min-available": "2", f"{KO}/match-policy": "only-waiting"}
    found = said({}, annotations)
    assert found.policy == "once-satisfied"
    assert in_words(found.complaints[0]).endswith("know once-satisfied only; only-waiting is ignored")


@pytest.mark.parametrize("text", ["", "10", "-5s", "0s", "1.5h", "five", "1d", "s", "9" * 200 + "s"])
def test_a_bad_waiting_time_is_told(text: str) -> None:
    found = said({}, {f"{KO}/name": "a", f"{KO}/min-available": "2", f"{KO}/waiting-time": text})
    assert found.timeout_ms == DEFAULT_TIMEOUT_MS
    assert "is not a time such as 30s" in in_words(found.complaints[0])


def test_durations() -> None:
    assert [duration_ms(text) for text in ("1h", "1m30s", "500ms", "2h45m")] == [3_600_000, 90_000, 500, 9_900_000]


def test_a_negative_timeout_of_a_pod_group_is_told() -> None:
    found = said({SIGS: "nginx"}, of=group(timeout_s=-1))
    assert found.timeout_ms == DEFAULT_TIMEOUT_MS
    assert tuple(map(in_words, found.complaints)) == ("spec.scheduleTimeoutSeconds: -1 is not a time; 600 s are used",)


# --- groups of gangs ----------------------------------------------------------------------------------------------

TWO = '["other/b", "ns/a", "ns/a"]'


@pytest.mark.parametrize("key", [f"{SIGS}/groups", f"{KO}/groups"])
def test_a_group_is_its_gangs_sorted(key: str) -> None:
    labels = {f"{SIGS}/name": "a", f"{SIGS}/min-available": "2"}
    assert said(labels, {key: TWO}).group == ("ns/a", "other/b")
    on_group = group("a", **{key.replace("/", "__"): TWO})
    assert said(labels, {key: '["ns/a"]'}, on_group).group == ("ns/a", "other/b")


@pytest.mark.parametrize(
    "text",
    ["[", "{}", '"ns/a"', "[1]", '["a"]', '["ns/"]', '["Ns/a"]', '["ns/c"]', json.dumps(["ns/a"] * 65), "[" * 5000],
)
def test_a_bad_group_is_told_and_the_gang_starts_on_its_own(text: str) -> None:
    found = said({f"{SIGS}/name": "a", f"{SIGS}/min-available": "2"}, {f"{KO}/groups": text})
    assert (found.group, found.refusal) == (("ns/a",), None)
    assert in_words(found.complaints[0]).endswith("; gang ns/a starts on its own")
    assert len(in_words(found.complaints[0])) < 300


@pytest.mark.parametrize("text", ["[]", ""])
def test_an_empty_group_is_the_gang_itself(text: str) -> None:
    found = said({f"{SIGS}/name": "a", f"{SIGS}/min-available": "2"}, {f"{KO}/groups": text})
    assert (found.group, found.complaints) == (("ns/a",), ())


def test_a_group_waits_for_all_of_its_gangs() -> None:
    both = '["ns/a", "ns/b"]'
    a = said({f"{SIGS}/name": "a", f"{SIGS}/min-available": "2"}, {f"{KO}/groups": both})
    b = said({f"{SIGS}/name": "b", f"{SIGS}/min-available": "3"}, {f"{KO}/groups": both})
    bad = said({f"{SIGS}/name": "b", f"{SIGS}/min-available": "x"}, {f"{KO}/groups": both})
    alone = said({f"{SIGS}/name": "b", f"{SIGS}/min-available": "3"})
    assert incomplete({"ns/a": a, "ns/b": b}, "ns/a") is None
    assert in_words(incomplete({"ns/a": a}, "ns/a")) == "gang ns/b of its group does not exist"
    assert in_words(incomplete({"ns/a": a, "ns/b": bad}, "ns/a")).startswith("gang ns/b of its group is refused: ")
    assert in_words(incomplete({"ns/a": a, "ns/b": alone}, "ns/a")) == "gang ns/b names another group: ns/b"


# --- counting -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("policy", "starts"),
    [
        ("once-satisfied", True),
        ("only-waiting", False),
        ("waiting-and-running", False),
        ("waiting-running-succeed", True),
    ],
)
def test_one_new_pod_of_a_gang_of_three_of_which_two_succeeded(policy: str, starts: bool) -> None:
    assert satisfied(policy, 3, GangCounts(waiting=1, running=1, succeeded=2, satisfied=True)) is starts


@pytest.mark.parametrize("policy", ["once-satisfied", "only-waiting", "waiting-and-running", "waiting-running-succeed"])
def test_at_first_every_policy_wants_all(policy: str) -> None:
    assert missing(policy, 3, GangCounts(waiting=2)) == 1
    assert satisfied(policy, 3, GangCounts(waiting=3))


# --- one priority -------------------------------------------------------------------------------------------------


def test_one_priority_per_gang() -> None:
    assert priority_clash("ns/a", [("p0", 5), ("p1", 5)]) == (5, None)
    assert priority_clash("ns/a", []) == (0, None)
    lowest, refusal = priority_clash("ns/a", [(f"p{index}", 9 if index == 3 else 5) for index in range(5)])
    assert lowest == 5
    assert in_words(refusal).startswith("pods of gang ns/a must have one priority: p3 has 9, others have 5")
