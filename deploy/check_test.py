#!/usr/bin/env python3
"""Breaks the files of this folder one by one, in a copy, and expects check.py to notice: python3 deploy/check_test.py"""

import contextlib
import io
import shutil
import subprocess
import sys
import tempfile
import traceback
from pathlib import Path

HERE = Path(__file__).resolve().parent
NODES, SIDECAR, AGENTS = "kubernetes/nodes/nodes.yaml", "kubernetes/sidecar.yaml", "kubernetes/agents.yaml"
CHART, BUCKET, IDENTITY = "helm/tenure", "cloud/aws/bucket-policy.json", "cloud/aws/identity-policy.json"
ROLE = "apiVersion: rbac.authorization.k8s.io/v1\nkind: Role\nmetadata: {name: x}\nrules: []\n---\n"

# What is checked; the file to break, if it is another; what is replaced, once; by what; what must be said.
BROKEN = [
    (NODES, None, "replicas: 3", "replica: 3", "Kubernetes 1.30"),
    (NODES, None, "replicas: 3", "replicas: three", "Kubernetes 1.30"),
    (NODES, None, "apiVersion: v1", ROLE + "apiVersion: v1", "no RBAC"),
    (NODES, None, "valueFrom:\n                secretKeyRef: {name: tenure-http, key: token}", "value: x", "must come from a Secret"),
    (NODES, None, "            - name: TENURE_HTTP_READ_TOKEN\n              valueFrom:\n                "
     "secretKeyRef: {name: tenure-http, key: read-token}\n", "", "no token for reading"),
    (NODES, None, "fieldPath: metadata.name}", "fieldPath: metadata.uid}", "must be the pod's name"),
    (NODES, None, "readinessProbe:\n            httpGet: {path: /readyz, port: http}\n            periodSeconds: 2\n"
     "            timeoutSeconds: 2\n            failureThreshold: 2\n          ", "", "has the probes"),
    (NODES, None, "runAsUser: 65532", "runAsUser: 0", "may run as root"),
    (NODES, None, "drop: [ALL]", "drop: [KILL]", "has capabilities"),
    (NODES, None, "readOnlyRootFilesystem: true", "readOnlyRootFilesystem: false", "can be written"),
    (NODES, None, "allowPrivilegeEscalation: false", "allowPrivilegeEscalation: true", "gain privileges"),
    (NODES, None, "RuntimeDefault", "Unconfined", "seccomp"),
    (NODES, None, "limits: {memory: 256Mi}", "limits: {memory: 256Mi, cpu: 100m}", "cost the lease"),
    (NODES, None, "limits: {memory: 256Mi}", "limits: {}", "a limit for memory"),
    (NODES, None, "terminationGracePeriodSeconds: 30", "terminationGracePeriodSeconds: 10", "too little time"),
    (NODES, None, "enableServiceLinks: false", "enableServiceLinks: true", "variable for each Service"),
    (NODES, None, "      automountServiceAccountToken: false\n", "", "token of the Kubernetes API"),
    (NODES, None, "image: tenure:0.1.0", "image: tenure:latest", "no version"),
    (NODES, None, "targetPort: http", "targetPort: web", "port that no container has"),
    (NODES, None, "serviceAccountName: tenure", "serviceAccountName: default", "service account is not here"),
    (SIDECAR, None, "          restartPolicy: Always\n", "", "no sidecar"),
    (AGENTS, None, "topologyKey: kubernetes.io/hostname", "topologyKey: topology.kubernetes.io/zone", "not spread"),
    ("kubernetes/leader", "kubernetes/leader/kustomization.yaml", "containers/0/readinessProbe", "containers/1/readinessProbe",
     "ValueError"),
    (CHART, "helm/tenure/templates/_helpers.tpl", "drop: [ALL]", "drop: []", "has capabilities"),
    (CHART, "helm/tenure/templates/_helpers.tpl", "failureThreshold: 60", "failureThreshold: 61", "differs from kubernetes/sidecar.yaml"),
    (CHART, "helm/tenure/templates/nodes.yaml", "sleep: {seconds: 3}", "sleep: {seconds: 4}", "differs from kubernetes/nodes/nodes.yaml"),
    (CHART, NODES, "periodSeconds: 10", "periodSeconds: 11", "differs from kubernetes/nodes/nodes.yaml"),
    (CHART, "helm/tenure/values.schema.json", '"enum": ["joined", "leads"]', '"type": "string"', "nodes.readyWhen=x pass"),
    (CHART, "helm/tenure/values.yaml", "memory: 256Mi", "memory: 257Mi", "differs from kubernetes/agents.yaml"),
    (BUCKET, None, '"s3:if-match": "true",\n', "", "must deny what has neither"),
    (BUCKET, None, '"arn:aws:s3:::my-bucket/tenure/plg_coordinator/*/*/nodes/*",\n', "", "must not be written with a condition"),
    (BUCKET, None, "plg_coordinator/*/*/nodes/*", "plg_coordinator/*", "seat.json must be written with a condition"),
    (IDENTITY, None, '"s3:DeleteObject"', '"s3:*"', "docs/guide/s3.md"),
    ("compose/compose.yaml", None, "restart:", "restarts:", "compose.yaml"),
    ("compose/compose.yaml", None, '"127.0.0.1:7420:7420"', '"7420:7420"', "others on the network"),
    ("systemd/tenure.service", None, "WatchdogSec=30", "WatchdogSecs=30", "WatchdogSecs"),
    ("systemd/tenure.service", None, "LimitCORE=0", "LimitCORE=1", "leaves a core"),
    ("systemd/tenure.service", None, "NoNewPrivileges=yes\nCapabilityBoundingSet=\nProtectSystem=strict\n", "", "open to attack"),
    ("cloud/gcs", "cloud/gcs/main.tf", "project  ", "project ", "project"),
    ("cloud/gcs", "cloud/gcs/main.tf", "var.location", "var.place", "var.place is not declared"),
    ("cloud/aws", "cloud/aws/main.tf", "aws_iam_role.tenure.arn", "aws_iam_role.tenures.arn", "aws_iam_role.tenures is not declared"),
    ("cloud/azure", "cloud/azure/main.tf", 'variable "', 'variable "spare" { description = "var.spare" }\n\nvariable "',
     "var.spare is not used"),
    ("cloud/azure", "cloud/azure/main.tf", "azurerm_storage_container.tenure.name", "azurerm_storage_container.pods.name",
     "azurerm_storage_container.pods is not declared"),
    ("cloud/aws", "cloud/aws/main.tf", "data.aws_iam_policy_document.trust.json", "local.oidc_issuer",
     "data.aws_iam_policy_document.trust is not used"),
    ("cloud/aws", "cloud/aws/main.tf", "${local.oidc_issuer}", "", "local.oidc_issuer is not used"),
    ("cloud/aws", "cloud/aws/main.tf", '"s3://${aws_s3_bucket.tenure.id}/${var.prefix}"', "<<-END\n    x\n  END", "has a heredoc"),
    ("cloud/gcs", "cloud/gcs/main.tf", "var.project", "var.", "UnexpectedToken"),
]


def as_program(check, path):
    done = subprocess.run([sys.executable, check.__file__, path], capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def called(check, path):
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        try:
            code = check.main([path])
        except Exception:
            code = None
            traceback.print_exc(file=sys.stdout)
    return code, printed.getvalue()


def main():
    missed = 0
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder, "deploy")
        shutil.copytree(HERE, copy)
        shutil.copytree(HERE.parent / "docs", Path(folder, "docs"))
        sys.path[0] = str(copy)
        import check  # The copy, which looks at the files around it.

        for index, (checked, other, old, new, said) in enumerate(BROKEN):
            file = copy / (other or checked)
            text = file.read_text()
            if old not in text:
                print(f"MISSED {file.name}: it has no {old!r} to break")
                missed += 1
                continue
            file.write_text(text.replace(old, new, 1))
            # One as a program, for its exit code; the others without the time that Python and its imports take.
            code, printed = (called if index else as_program)(check, copy / checked)
            file.write_text(text)
            if code == 0 and printed.startswith("skip"):
                print(printed.strip())
            elif code != 1 or said not in printed:
                print(f"MISSED {checked}: {old!r} became {new!r}\n{printed}")
                missed += 1
    print(f"{len(BROKEN) - missed} of {len(BROKEN)} noticed")
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
