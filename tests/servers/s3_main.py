"""The S3 server of the local cluster as a program: `s3_main.py FOLDER PLACE...`.

A place is [ADDRESS:]PORT, for TLS with a certificate's chain and its key: `,CHAIN,KEY`. Beyond the
product's server each key has its own rights, and the program ends with the process that started it.
"""

# ruff: noqa: E402 - the path is set before what is on it is imported
from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

import eventlet
from s3_rights import Judge, Rights
from swift.common.middleware.s3api import s3api
from swift.common.middleware.s3api.s3response import AccessDenied

from infra.local.s3_server import listen, serve
from menagerie.process import end_with

# What s3api is about to do, as S3's table "Actions defined by Amazon S3" calls it.
ACTIONS = {
    ("BucketController", "GET"): "s3:ListBucket",
    ("BucketController", "HEAD"): "s3:ListBucket",
    ("BucketController", "PUT"): "s3:CreateBucket",
    ("BucketController", "DELETE"): "s3:DeleteBucket",
    ("ObjectController", "GET"): "s3:GetObject",
    ("ObjectController", "HEAD"): "s3:GetObject",
    ("ObjectController", "PUT"): "s3:PutObject",
    ("ObjectController", "DELETE"): "s3:DeleteObject",
    ("UploadsController", "GET"): "s3:ListBucketMultipartUploads",
    ("UploadsController", "POST"): "s3:PutObject",
    ("PartController", "PUT"): "s3:PutObject",
    ("UploadController", "GET"): "s3:ListMultipartUploadParts",
    ("UploadController", "POST"): "s3:PutObject",
    ("UploadController", "DELETE"): "s3:AbortMultipartUpload",
}
OTHER = "s3:Other"  # what is not in the table, and copies: no policy of ours allows them


def guarded(judge: Judge) -> type[Any]:
    """Swift's s3api, but a request that is refused goes no further."""

    class Guarded(s3api.S3ApiMiddleware):
        def handle_request(self, req: Any) -> Any:
            action = ACTIONS.get((req.controller.__name__, req.method), OTHER)
            if "X-Amz-Copy-Source" in req.headers:
                action = OTHER
            resource = f"arn:aws:s3:::{req.container_name or ''}"
            if req.object_name:
                resource += f"/{req.object_name}"
            secure = req.environ["wsgi.url_scheme"] == "https"
            context = {"aws:SecureTransport": str(secure).lower()}
            if action == "s3:ListBucket" and "prefix" in req.params:
                context["s3:prefix"] = req.params["prefix"]
            if judge.refuses(req.access_key, action, resource, context):
                raise AccessDenied(reason="policy")
            return super().handle_request(req)

    return Guarded


def listener(place: str) -> Any:
    """What listens at one place."""
    at, *files = place.split(",")
    address, _, port = at.rpartition(":")
    plain = listen(int(port), address or "127.0.0.1")
    if not files:
        return plain
    return eventlet.wrap_ssl(plain, certfile=files[0], keyfile=files[1], server_side=True)


if __name__ == "__main__":
    end_with(os.getppid())
    rights = Rights.from_json(os.environ["MENAGERIE_SWIFT_RIGHTS"])
    s3api.S3ApiMiddleware = guarded(Judge(rights))
    keys = {key.name: key.secret for key in rights.keys}
    serve(Path(sys.argv[1]), keys, [listener(place) for place in sys.argv[2:]])
