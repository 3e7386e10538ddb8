"""Wait for an S3 endpoint, make its bucket, write and read one object through it.

Python because an engine's wheel needs Python anyway; only the standard library, so nothing else to install.
Argument: a JSON object with endpoint, region, bucket, access_key, secret_key, deadline_s and optionally
reader_access_key, reader_secret_key (an identity that must be able to list and must not be able to write)
and reader_arn (allow that identity by a bucket policy first).
"""

import datetime
import hashlib
import hmac
import http.client
import json
import sys
import time
import urllib.parse


def signed(job, method, path, body=b"", query="", reader=False):
    """One request signed with AWS signature version 4; returns (status, body)."""
    access = job["reader_access_key" if reader else "access_key"]
    secret = job["reader_secret_key" if reader else "secret_key"]
    host = urllib.parse.urlsplit(job["endpoint"]).netloc
    now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y%m%dT%H%M%SZ")
    day, digest = now[:8], hashlib.sha256(body).hexdigest()
    headers = {"host": host, "x-amz-content-sha256": digest, "x-amz-date": now}
    names = ";".join(headers)
    listed = "".join(f"{name}:{value}\n" for name, value in headers.items())
    request = "\n".join([method, urllib.parse.quote(path), query, listed, names, digest])
    scope = f"{day}/{job['region']}/s3/aws4_request"
    text = "\n".join(["AWS4-HMAC-SHA256", now, scope, hashlib.sha256(request.encode()).hexdigest()])
    key = ("AWS4" + secret).encode()
    for part in (day, job["region"], "s3", "aws4_request"):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    signature = hmac.new(key, text.encode(), hashlib.sha256).hexdigest()
    headers["authorization"] = (
        f"AWS4-HMAC-SHA256 Credential={access}/{scope}, SignedHeaders={names}, Signature={signature}"
    )
    connection = http.client.HTTPConnection(host, timeout=10)
    try:
        connection.request(method, path + ("?" + query if query else ""), body, headers)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def expect(what, answer, *statuses):
    status, body = answer
    if status not in statuses:
        raise RuntimeError(f"{what}: HTTP {status}: {body[:300].decode(errors='replace')}")
    return body


def allow_reader(job):
    bucket = f"arn:aws:s3:::{job['bucket']}"
    statement = {
        "Effect": "Allow",
        "Principal": {"AWS": [job["reader_arn"]]},
        "Action": ["s3:GetObject", "s3:ListBucket"],
        "Resource": [bucket, bucket + "/*"],
    }
    policy = json.dumps({"Version": "2012-10-17", "Statement": [statement]}).encode()
    expect("put the policy", signed(job, "PUT", f"/{job['bucket']}", policy, "policy="), 200, 204)


def prepare(job):
    bucket = f"/{job['bucket']}"
    expect("create the bucket", signed(job, "PUT", bucket), 200, 204, 409)
    body = job["endpoint"].encode()
    probe = bucket + "/xtask-warm-up"
    expect("put", signed(job, "PUT", probe, body), 200)
    if expect("get", signed(job, "GET", probe), 200) != body:
        raise RuntimeError("get: not what was put")
    if job.get("reader_arn"):
        allow_reader(job)
    if job.get("reader_access_key"):
        expect("list as reader", signed(job, "GET", bucket, query="list-type=2", reader=True), 200)
        expect("get as reader", signed(job, "GET", probe, reader=True), 200)
        expect("put as reader", signed(job, "PUT", probe, b"no", reader=True), 403)
    expect("delete", signed(job, "DELETE", probe), 200, 204)


def main():
    job = json.loads(sys.argv[1])
    deadline = time.monotonic() + job["deadline_s"]
    while True:
        try:
            return prepare(job)
        except (OSError, http.client.HTTPException, RuntimeError) as error:
            if time.monotonic() > deadline:
                sys.exit(f"{job['endpoint']} not usable within {job['deadline_s']} s: {error}")
        time.sleep(0.1)


main()
