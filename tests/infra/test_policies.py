"""Rights: what the store asks of S3 is allowed, and nothing else is; Kubernetes likewise."""

from __future__ import annotations

import ast
import json
import re
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from menagerie.store import layout

ROOT = Path(__file__).parents[2]
S3 = ROOT / "infra" / "s3"
KUBERNETES = ROOT / "infra" / "kubernetes"

# S3's own list of which request needs which right: the table "Actions defined by Amazon S3".
RIGHTS = {
    "abort_multipart_upload": "s3:AbortMultipartUpload",
    "complete_multipart_upload": "s3:PutObject",
    "create_multipart_upload": "s3:PutObject",
    "delete_object": "s3:DeleteObject",
    "get_object": "s3:GetObject",
    "head_object": "s3:GetObject",
    "list_multipart_uploads": "s3:ListBucketMultipartUploads",
    "list_objects_v2": "s3:ListBucket",
    "put_object": "s3:PutObject",
    "upload_part": "s3:PutObject",
}
# What boto3's transfer manager sends: one request, or several for a file in parts.
TRANSFER = {
    "put_object", "create_multipart_upload", "upload_part", "complete_multipart_upload",
    "abort_multipart_upload",
}  # fmt: skip
OPERATORS = {"create_bucket", "head_bucket"}  # `zoo cluster up` alone, on a server of its own
READING = {"get_object", "head_object", "list_objects_v2"}
# The condition keys of that table, as far as policies here use them: of an upload in parts S3 gives
# the prefix to no condition, so that those can only be listed for a whole bucket or not at all.
CONDITIONS = {"s3:ListBucket": {"s3:prefix"}, "s3:ListBucketMultipartUploads": set()}
BUCKET = "arn:aws:s3:::models"
HELPERS = {"get_paginator", "exceptions", "close", "generate_presigned_url", "meta"}


def requests_made() -> set[str]:
    """Every request of boto3's client in the store's code, by name."""
    found = set()
    folders = (ROOT / "zoo" / "store", ROOT / "runtime" / "menagerie" / "store")
    for path in (path for folder in folders for path in folder.glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Attribute):
                if node.value.attr in ("_client", "client"):
                    found.add(node.attr)
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                named = node.func.attr in ("get_paginator", "generate_presigned_url")
                if named and node.args and isinstance(node.args[0], ast.Constant):
                    found.add(str(node.args[0].value))
    if "upload_fileobj" in found:
        found = found - {"upload_fileobj"} | TRANSFER
    return found - HELPERS


def allowed(policy: str) -> set[str]:
    """The actions that a policy allows."""
    statements = json.loads((S3 / policy).read_text())["Statement"]
    return {a for s in statements if s["Effect"] == "Allow" for a in s["Action"]}


def test_the_walk_sees_all_kinds_of_requests() -> None:
    """Direct ones, pages of a listing, and those of the upload in parts."""
    assert {"put_object", "list_objects_v2", "upload_part"} <= requests_made()


def test_a_worker_may_what_the_store_does_and_no_more() -> None:
    """Every request is allowed, and every right is needed by one."""
    made = requests_made() - OPERATORS
    assert made <= set(RIGHTS), "name the right that this request needs"
    assert allowed("worker-policy.json") == {RIGHTS[request] for request in made}


def test_a_promoter_may_what_the_store_does_and_no_more() -> None:
    """The same requests as a worker's, below the whole prefix."""
    assert allowed("operator-policy.json") == allowed("worker-policy.json")


PROMOTED = ["releases", "signatures", "ledgers", "provenance", "metadata"]


@pytest.mark.parametrize("folder", PROMOTED)
def test_a_worker_cannot_write_what_is_promoted(folder: str) -> None:
    """A stolen worker's key proposes candidates; it makes and alters no release."""
    place = f"{BUCKET}/zoo/{folder}/x.json"
    assert not may("worker-policy.json", "s3:PutObject", place)
    assert may("operator-policy.json", "s3:PutObject", place)
    assert may("worker-policy.json", "s3:PutObject", f"{BUCKET}/zoo/candidates/a/cpu/x.json")


def test_a_worker_writes_to_the_folders_of_the_store_and_no_others() -> None:
    """Those that the store's layout names, but for what is promoted; and the doctor tries one."""
    statements = json.loads((S3 / "worker-policy.json").read_text())["Statement"]
    written = {s["Resource"] for s in statements if "s3:PutObject" in s["Action"]}
    named = vars(layout).items()
    constants = [value for name, value in named if re.fullmatch("[A-Z]+", name)]
    kinds = [value.folder for _, value in named if isinstance(value, layout.Keys)]
    folders = {prefix.removesuffix("/") for prefix in [*constants, *kinds]} - {*PROMOTED} | {
        "probe"
    }
    assert written == {f"{BUCKET}/zoo/{folder}/*" for folder in folders}


def test_a_reader_may_only_read() -> None:
    """What `zoo pull` asks."""
    assert allowed("reader-policy.json") == {RIGHTS[request] for request in READING}


def may(policy: str, action: str, resource: str, **context: str) -> bool:
    """Whether a policy allows a request, judged as IAM does, as far as ours go.

    A statement without the action, for another resource, or with a condition that does not hold
    allows nothing; a condition on a key that the request lacks holds for operators in -IfExists.
    """
    known = {key.replace("_", ":"): value for key, value in context.items()}
    for statement in json.loads((S3 / policy).read_text())["Statement"]:
        assert set(statement) <= {"Sid", "Effect", "Action", "Resource", "Condition"}
        assert statement["Effect"] == "Allow"
        holds = all(
            (key not in known and operator.endswith("IfExists"))
            or (key in known and any(fnmatchcase(known[key], each) for each in patterns))
            for operator, wanted in statement.get("Condition", {}).items()
            for key, patterns in wanted.items()
        )
        if action in statement["Action"] and fnmatchcase(resource, statement["Resource"]) and holds:
            return True
    return False


POLICIES = ["worker-policy.json", "reader-policy.json", "operator-policy.json"]


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("prefix", ["zoo/", "zoo/releases/", "zoo/blobs/ab"])
def test_what_lies_below_the_prefix_can_be_listed(policy: str, prefix: str) -> None:
    """As the store asks: its listings always name a prefix that ends in or below `zoo/`."""
    assert may(policy, "s3:ListBucket", BUCKET, s3_prefix=prefix)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("prefix", [None, "", "z", "zoo", "zoology/", "other/zoo/"])
def test_nothing_else_can_be_listed(policy: str, prefix: str | None) -> None:
    """Neither by another prefix nor by leaving it out, which lists the whole bucket."""
    context = {} if prefix is None else {"s3_prefix": prefix}
    assert not may(policy, "s3:ListBucket", BUCKET, **context)


@pytest.mark.parametrize("policy", POLICIES)
def test_objects_elsewhere_are_out_of_reach(policy: str) -> None:
    """Every action on objects ends at the prefix; none has a wildcard."""
    for action in allowed(policy) - set(CONDITIONS):
        assert "*" not in action
        assert may(policy, action, f"{BUCKET}/zoo/blobs/ab")
        for place in (BUCKET, f"{BUCKET}/zoo", f"{BUCKET}/zoology/x", f"{BUCKET}2/zoo/x"):
            assert not may(policy, action, place)


@pytest.mark.parametrize("policy", POLICIES)
def test_conditions_are_on_keys_that_the_action_has(policy: str) -> None:
    """S3 never gives another key: the condition would never hold, or with IfExists always."""
    document = json.loads((S3 / policy).read_text())
    assert document["Version"] == "2012-10-17"
    for statement in document["Statement"]:
        keys = {key for wanted in statement.get("Condition", {}).values() for key in wanted}
        for action in statement["Action"]:
            assert keys == CONDITIONS.get(action, set())


def test_a_worker_finds_abandoned_uploads() -> None:
    """`zoo gc` lists them; the request brings no key that a condition could look at."""
    assert may("worker-policy.json", "s3:ListBucketMultipartUploads", BUCKET)


def test_the_bucket_refuses_what_is_not_encrypted() -> None:
    """For every caller and every action."""
    [statement] = json.loads((S3 / "bucket-policy.json").read_text())["Statement"]
    assert statement["Effect"] == "Deny"
    assert statement["Condition"] == {"Bool": {"aws:SecureTransport": "false"}}
    assert statement["Action"] == "s3:*"


def test_the_lifecycle_touches_no_release() -> None:
    """It ends forgotten uploads, and expires nothing."""
    [rule] = json.loads((S3 / "lifecycle.json").read_text())["Rules"]
    assert not any("Expiration" in key for key in rule)
    assert rule["AbortIncompleteMultipartUpload"] == {"DaysAfterInitiation": 7}


def manifests() -> list[dict[str, Any]]:
    """The documents of the Kubernetes worker."""
    return list(YAML(typ="safe").load_all(KUBERNETES / "worker.yaml"))


def test_kubernetes_manifests_are_whole() -> None:
    """Each has a kind with its API, a name and the namespace; references meet."""
    apis = {
        "ServiceAccount": "v1",
        "PersistentVolumeClaim": "v1",
        "Role": "rbac.authorization.k8s.io/v1",
        "RoleBinding": "rbac.authorization.k8s.io/v1",
        "Deployment": "apps/v1",
    }
    found = {document["kind"]: document for document in manifests()}
    assert {kind: document["apiVersion"] for kind, document in found.items()} == apis
    for document in found.values():
        assert document["metadata"]["namespace"] == "menagerie"
    assert found["RoleBinding"]["roleRef"]["name"] == found["Role"]["metadata"]["name"]
    account = found["ServiceAccount"]["metadata"]["name"]
    assert found["RoleBinding"]["subjects"][0]["name"] == account
    spec = found["Deployment"]["spec"]
    assert spec["template"]["spec"]["serviceAccountName"] == account
    assert spec["selector"]["matchLabels"] == spec["template"]["metadata"]["labels"]


def test_the_kubernetes_worker_has_few_rights() -> None:
    """Jobs of its namespace, and looking at their pods; no secret can be read."""
    [role] = [document for document in manifests() if document["kind"] == "Role"]
    rights = {r: set(rule["verbs"]) for rule in role["rules"] for r in rule["resources"]}
    assert set(rights) == {"jobs", "pods", "pods/log", "pods/status", "events"}
    assert rights["pods"] == {"get", "list", "watch"}
    assert not any("*" in verbs for verbs in rights.values())


def test_the_kubernetes_worker_asks_for_its_namespace_alone() -> None:
    """Its observer, which by default watches the whole cluster, needs what the role gives there.

    Nor does it ask the namespace kube-system who the cluster is.
    """
    found = {document["kind"]: document for document in manifests()}
    [container] = found["Deployment"]["spec"]["template"]["spec"]["containers"]
    values = {each["name"]: each["value"] for each in container["env"]}
    namespace = found["Role"]["metadata"]["namespace"]
    template = json.loads((KUBERNETES / "base-job-template.json").read_text())
    assert values["PREFECT_INTEGRATIONS_KUBERNETES_OBSERVER_NAMESPACES"] == namespace
    assert template["variables"]["properties"]["namespace"]["default"] == namespace
    assert values["PREFECT_INTEGRATIONS_KUBERNETES_CLUSTER_UID"]
    for api, resource in (("batch", "jobs"), ("", "pods")):
        [rule] = [r for r in found["Role"]["rules"] if resource in r["resources"]]
        assert rule["apiGroups"] == [api]
        assert {"list", "watch"} <= set(rule["verbs"])


def test_the_job_template_is_one_of_prefects() -> None:
    """Every placeholder is a variable, every variable is used, and defaults fit their types."""
    text = (KUBERNETES / "base-job-template.json").read_text()
    template = json.loads(text)
    assert set(template) == {"variables", "job_configuration"}
    variables = template["variables"]["properties"]
    used = set(re.findall(r"{{ (\w+) }}", json.dumps(template["job_configuration"])))
    assert used == set(variables)
    kinds = {"string": str, "integer": int, "object": dict}
    for variable in variables.values():
        if "default" in variable:
            assert isinstance(variable["default"], kinds[variable["type"]])


def test_pods_keep_their_caches() -> None:
    """The image's home outlives a pod: it is a volume claim, and the claim is in the manifests."""
    template = json.loads((KUBERNETES / "base-job-template.json").read_text())
    pod = template["job_configuration"]["job_manifest"]["spec"]["template"]["spec"]
    [volume] = pod["volumes"]
    assert volume["persistentVolumeClaim"] == {"claimName": "{{ claim }}"}
    named = template["variables"]["properties"]["claim"]["default"]
    assert [named] == [
        each["metadata"]["name"] for each in manifests() if each["kind"] == "PersistentVolumeClaim"
    ]
    [container] = pod["containers"]
    [mount] = container["volumeMounts"]
    image = (ROOT / "infra" / "container" / "Containerfile").read_text()
    assert f"VOLUME {mount['mountPath']}\n" in image
    assert f"MENAGERIE_HOME={mount['mountPath']}/" in image


def test_pods_are_bounded_and_without_rights() -> None:
    """Memory, disk and time have limits; no root, no token of the cluster, no retry of its own."""
    template = json.loads((KUBERNETES / "base-job-template.json").read_text())
    job = template["job_configuration"]["job_manifest"]["spec"]
    assert job["backoffLimit"] == 0
    assert job["activeDeadlineSeconds"]
    pod = job["template"]["spec"]
    assert pod["restartPolicy"] == "Never"
    assert pod["automountServiceAccountToken"] is False
    assert pod["securityContext"]["runAsNonRoot"]
    [container] = pod["containers"]
    assert set(container["resources"]["limits"]) == {"memory", "ephemeral-storage"}
    assert container["securityContext"]["allowPrivilegeEscalation"] is False
