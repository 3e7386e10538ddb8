#!/usr/bin/env python3
"""Checks the files of this folder: python3 deploy/check.py [PATH...]; without a path, all of them.

A path is a file of Kubernetes manifests, a folder with a kustomization or a Helm chart, a compose file, a unit of systemd, a folder
of Terraform, or an IAM policy. Prints one line for each, and each fault on a line of its own. Exit code 1 if there is any.

Needs what requirements.txt lists. `kubectl`, `systemd-analyze` and `terraform` are used if they are there; what is skipped is said.
"""

import functools
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from fnmatch import fnmatchcase
from pathlib import Path

import kubernetes_validate
import yaml
from hcl2.query import DocumentView
from hcl2.rules.indexing import GetAttrExprTermRule
from hcl2.rules.strings import HeredocTemplateRule
from lark import LarkError

HERE = Path(__file__).resolve().parent
DOCS = HERE.parent / "docs"
# The oldest version that runs the manifests (native sidecars, a sleep before the stop), and the newest that the validator knows.
VERSIONS = ("1.30", kubernetes_validate.latest_version())
KINDS = {"ServiceAccount", "Service", "Deployment", "StatefulSet", "PodDisruptionBudget"}
SECRET_NAME = re.compile(r"TOKEN$|SECRET|PASSWORD|_KEY$|ACCESS_KEY")
STOP_SECONDS = 12  # A leader whose store does not answer was seen to take 8 s to end.


class Skip(Exception):
    """A tool that is not there."""


def run(*command, **options):
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    tool = shutil.which(command[0], path=path)
    if tool is None:
        raise Skip(f"{command[0]} is not installed")
    return subprocess.run([tool, *command[1:]], capture_output=True, text=True, **options)


def output(*command, **options):
    done = run(*command, **options)
    if done.returncode != 0:
        raise ValueError((done.stderr or done.stdout).strip())
    return done.stdout


# Kubernetes.


def load(text):
    return [document for document in yaml.load_all(text, yaml.CSafeLoader) if document]


def pod_of(thing):
    return thing["spec"]["template"] if thing["kind"] in ("Deployment", "StatefulSet") else None


def is_tenure(container):
    return (container.get("args") or [""])[0] in ("run", "agent")


def check_container(container, sidecar):
    name, args = container["name"], container.get("args") or [""]
    security = container.get("securityContext", {})
    if security.get("allowPrivilegeEscalation") is not False or security.get("privileged"):
        yield f"{name}: may gain privileges"
    if security.get("readOnlyRootFilesystem") is not True:
        yield f"{name}: its root file system can be written"
    if security.get("capabilities") != {"drop": ["ALL"]}:
        yield f"{name}: has capabilities"
    if ":" not in container["image"] or container["image"].endswith(":latest"):
        yield f"{name}: its image has no version"

    resources = container.get("resources", {})
    if set(resources.get("requests", {})) != {"cpu", "memory"} or "memory" not in resources.get("limits", {}):
        yield f"{name}: needs requests for cpu and memory, and a limit for memory"
    if is_tenure(container) and "cpu" in resources.get("limits", {}):
        yield f"{name}: a limit for cpu may cost the lease"

    wanted = {"startupProbe", "livenessProbe", "readinessProbe"}
    if args[0] == "agent":
        wanted = set()
    elif sidecar:
        wanted.remove("readinessProbe")
    found = {key for key in container if key.endswith("Probe")}
    if found != wanted:
        yield f"{name}: has the probes {sorted(found)}, not {sorted(wanted)}"

    variables = {variable["name"]: variable for variable in container.get("env", [])}
    for variable in variables.values():
        if SECRET_NAME.search(variable["name"]) and "secretKeyRef" not in variable.get("valueFrom", {}):
            yield f"{name}: {variable['name']} must come from a Secret"
    if is_tenure(container):
        source = variables.get("TENURE_NODE", {}).get("valueFrom", {})
        if source != {"fieldRef": {"fieldPath": "metadata.name"}}:
            yield f"{name}: TENURE_NODE must be the pod's name"
        if any(argument.startswith("--listen=") for argument in args) and "TENURE_HTTP_READ_TOKEN" not in variables:
            yield f"{name}: others can reach it, and there is no token for reading"


def check_pod(pod):
    spec, labels = pod["spec"], pod["metadata"]["labels"]
    security = spec.get("securityContext", {})
    if spec.get("automountServiceAccountToken") is not False:
        yield "gets a token of the Kubernetes API"
    if spec.get("enableServiceLinks") is not False:
        yield "gets a variable for each Service, and a Service named tenure makes TENURE_… of it"
    if security.get("runAsNonRoot") is not True or not security.get("runAsUser"):
        yield "may run as root"
    if security.get("seccompProfile") != {"type": "RuntimeDefault"}:
        yield "has no seccomp profile"
    if any(spec.get(key) for key in ("hostNetwork", "hostPID", "hostIPC")) or any("hostPath" in v for v in spec.get("volumes", [])):
        yield "reaches into the host"
    spread = {each["topologyKey"]: each["labelSelector"]["matchLabels"] for each in spec.get("topologySpreadConstraints", [])}
    if set(spread) != {"topology.kubernetes.io/zone", "kubernetes.io/hostname"}:
        yield "is not spread over zones and machines"
    if any(not chosen.items() <= labels.items() for chosen in spread.values()):
        yield "is spread by labels that it does not have"

    sidecars = spec.get("initContainers", [])
    for container in sidecars:
        if container.get("restartPolicy") != "Always":
            yield f"{container['name']}: an init container that is no sidecar"
        yield from check_container(container, sidecar=True)
    for container in spec["containers"]:
        yield from check_container(container, sidecar=False)
        pause = container.get("lifecycle", {}).get("preStop", {}).get("sleep", {}).get("seconds", 0)
        if spec.get("terminationGracePeriodSeconds", 0) < pause + STOP_SECONDS:
            yield f"{container['name']}: has too little time to hand over"


@functools.cache
def validate(thing, version):
    """`thing` is JSON, which can be cached: most renderings of the chart have the same objects, and each validation reads 2 MB."""
    kubernetes_validate.validate(json.loads(thing), version, strict=True)


def check_objects(things):
    pods = [pod_of(thing) for thing in things if pod_of(thing)]
    for thing in things:
        where = f"{thing.get('kind')}/{thing.get('metadata', {}).get('name')}"
        if thing.get("kind") not in KINDS:
            yield f"{where}: only {', '.join(sorted(KINDS))} are needed: no RBAC, no Secret with a value in it"
            continue
        try:
            for version in VERSIONS:
                validate(json.dumps(thing), version)
        except (kubernetes_validate.ValidationError, kubernetes_validate.InvalidSchemaError) as error:
            yield f"{where}: Kubernetes {version}: {getattr(error, 'message', error)}"
            continue
        spec = thing.get("spec", {})
        if thing["kind"] == "ServiceAccount" and thing.get("automountServiceAccountToken") is not False:
            yield f"{where}: gives its pods a token of the Kubernetes API"
        if pod_of(thing):
            if not spec["selector"]["matchLabels"].items() <= pod_of(thing)["metadata"]["labels"].items():
                yield f"{where}: selects other pods than its own"
            if pod_of(thing)["spec"].get("serviceAccountName") not in names(things, "ServiceAccount"):
                yield f"{where}: its service account is not here"
            yield from (f"{where}: {fault}" for fault in check_pod(pod_of(thing)))
        if thing["kind"] in ("Service", "PodDisruptionBudget"):
            chosen = spec["selector"] if thing["kind"] == "Service" else spec["selector"]["matchLabels"]
            hit = [pod for pod in pods if chosen.items() <= pod["metadata"]["labels"].items()]
            if len(hit) != 1:
                yield f"{where}: selects the pods of {len(hit)} workloads"
            ports = {port["name"] for pod in hit for each in pod["spec"]["containers"] for port in each.get("ports", [])}
            if any(port["targetPort"] not in ports for port in spec.get("ports", [])):
                yield f"{where}: leads to a port that no container has"


def names(things, kind):
    return {thing["metadata"]["name"] for thing in things if thing.get("kind") == kind}


def check_manifests(path):
    things = load(path.read_text())
    yield from check_objects(things)


def check_kustomization(path):
    yield from check_objects(load(output("kubectl", "kustomize", str(path))))


# The chart.

BUCKET = ["--set", "store=s3://my-bucket/tenure", "--set", "env.AWS_REGION=eu-central-1"]
AGENTS = ["--set", "agents.replicas=2", "--set", "agents.args={--allow-command=/usr/local/bin/backup --all}"]
LEADS = ["--set", "nodes.readyWhen=leads"]
# An application's chart that includes the sidecar, with the pod of ../kubernetes/sidecar.yaml around it.
APP = {
    "Chart.yaml": "{apiVersion: v2, name: app, version: 0.0.0, dependencies: [{name: tenure, version: 0.1.0}]}",
    "values.yaml": "tenure: {store: 's3://my-bucket/tenure', namespace: app, env: {AWS_REGION: eu-central-1}, nodes: {replicas: 0}}",
    "templates/sidecar.yaml": 'initContainers: {{- include "tenure.sidecar" .Subcharts.tenure | nindent 2 }}\n',
}


def plain(thing):
    """Without what only Helm adds, and with lists of variables in one order."""
    if isinstance(thing, dict):
        added = {"app.kubernetes.io/instance", "app.kubernetes.io/version", "app.kubernetes.io/managed-by", "helm.sh/chart"}
        thing = {key: plain(value) for key, value in thing.items() if key not in added}
        if isinstance(thing.get("env"), list):
            thing["env"].sort(key=lambda variable: variable["name"])
        return thing
    return [plain(each) for each in thing] if isinstance(thing, list) else thing


def by_name(things):
    return {f"{thing['kind']}/{thing['metadata']['name']}": plain(thing) for thing in things}


def check_chart(path):
    output("helm", "lint", "--strict", str(path), *BUCKET)

    @functools.cache
    def rendered(*options):
        return load(output("helm", "template", "tenure", str(path), *BUCKET, *options))

    for options in ([], AGENTS, LEADS, [*AGENTS, "--set", "nodes.replicas=0"]):
        yield from check_objects(rendered(*options))
    other = by_name(load(output("helm", "template", "other", str(path), *BUCKET, *AGENTS)))
    if any(not name.split("/")[1].startswith("other-tenure") for name in other):
        yield "a second release would have objects of the same names"

    # The chart and the manifests say the same.
    for options, file in (([*AGENTS, "--set", "nodes.replicas=0"], "agents.yaml"), ([], "nodes/nodes.yaml")):
        yield from differences(by_name(load((HERE / "kubernetes" / file).read_text())), by_name(rendered(*options)), file)
    try:
        leader = load(output("kubectl", "kustomize", str(HERE / "kubernetes/leader")))
        yield from differences(by_name(leader), by_name(rendered(*LEADS)), "leader")
    except Skip as reason:
        print(f"skip   {path.name} against kubernetes/leader: {reason}")
    app = next(thing for thing in load((HERE / "kubernetes/sidecar.yaml").read_text()) if pod_of(thing))
    yield from differences({"tenure": plain(pod_of(app)["spec"]["initContainers"][0])}, {"tenure": plain(sidecar(path))}, "sidecar.yaml")

    for wrong in ("store=", "store=file:/x", "nodes.readyWhen=x", "env.AWS_SECRET_ACCESS_KEY=x", "node.replicas=1"):
        if run("helm", "template", "tenure", str(path), *BUCKET, "--set", wrong).returncode == 0:
            yield f"values.schema.json lets {wrong} pass"


def sidecar(path):
    with tempfile.TemporaryDirectory() as folder:
        for name, text in APP.items():
            file = Path(folder, "app", name)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        shutil.copytree(path, Path(folder, "app/charts/tenure"))
        things = load(output("helm", "template", "app", str(Path(folder, "app"))))
    return things[0]["initContainers"][0]


def differences(manifests, chart, file):
    for name in sorted(set(manifests) ^ set(chart)):
        yield f"{name} is only in {'kubernetes/' + file if name in manifests else 'the chart'}"
    for name in sorted(set(manifests) & set(chart)):
        for place in unequal(manifests[name], chart[name], name):
            yield f"differs from kubernetes/{file} at {place}"


def unequal(one, other, place):
    if isinstance(one, dict) and isinstance(other, dict):
        for key in sorted(set(one) | set(other)):
            yield from unequal(one.get(key), other.get(key), f"{place}.{key}")
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for index, (left, right) in enumerate(zip(one, other)):
            yield from unequal(left, right, f"{place}[{index}]")
    elif one != other:
        yield f"{place}: {one} and {other}"


# The others.


def check_compose(path):
    done = run("check-jsonschema", "--builtin-schema", "vendor.compose-spec", str(path))
    if done.returncode != 0:
        yield done.stdout.strip()
    for name, service in yaml.safe_load(path.read_text())["services"].items():
        if service["image"].endswith(":latest"):
            yield f"{name}: its image has no version"
        if any(not str(port).startswith("127.0.0.1:") for port in service.get("ports", [])):
            yield f"{name}: others on the network can reach it"
        if "healthcheck" not in service:
            yield f"{name}: has no health check"


def check_unit(path):
    with tempfile.TemporaryDirectory() as folder:
        binary = Path(folder, "tenure")
        binary.write_text("#!/bin/sh\n")
        binary.chmod(0o755)
        unit = Path(folder, path.name)
        unit.write_text(path.read_text().replace("ExecStart=tenure", f"ExecStart={binary}"))
        done = run("systemd-analyze", "verify", "--man=no", str(unit))
        yield from (line for line in done.stderr.splitlines() if path.name in line)
        done = run("systemd-analyze", "security", "--offline=true", "--threshold=20", "--no-pager", str(unit))
        if done.returncode != 0:
            yield f"is open to attack: {done.stdout.strip().splitlines()[-1]}"
        if "LimitCORE=0" not in path.read_text().splitlines():
            yield "leaves a core, with secrets in it"


# How a name that must be declared begins in Terraform, and those of them that must be used.
MUST_BE_USED = ("var.", "local.", "data.")
MUST_BE_DECLARED = (*MUST_BE_USED, "aws_", "google_", "azurerm_")


def check_terraform(path):
    file = DocumentView.parse_file(path / "main.tf")
    declared = {".".join(["var", *block.name_labels]) for block in file.blocks("variable")}
    declared |= {".".join(block.name_labels) for block in file.blocks("resource")}
    declared |= {".".join(block.labels) for block in file.blocks("data")}
    declared |= {f"local.{local.name}" for block in file.blocks("locals") for local in block.attributes()}
    # `a.b`, or `data.a.b`; the tree of `a.b.c` has one of `a.b` in it.
    accesses = {access.to_hcl() for access in file.find_all(GetAttrExprTermRule)}
    used = {name for name in accesses if name.startswith(MUST_BE_DECLARED) and name.count(".") == 1 + name.startswith("data.")}
    faults = [f"{name} is not declared" for name in sorted(used - declared)]
    faults += [f"{name} is not used" for name in sorted(declared - used) if name.startswith(MUST_BE_USED)]
    if file.find_all(HeredocTemplateRule):
        faults.append("has a heredoc: what is used in it is not seen")
    yield from faults
    if faults:
        return
    done = run("terraform", f"-chdir={path}", "fmt", "-check", "-diff")
    if done.returncode != 0:
        yield done.stdout.strip() or done.stderr.strip()


def keys():
    """One key for each object that docs/reference/objects.md lists."""
    block = (DOCS / "reference/objects.md").read_text().split("```")[1]
    for pattern in re.findall(r"(?:^|, )((?:plg_coordinator|tenure-doctor|probe-)[^ ,]*)", block, re.MULTILINE):
        yield re.sub(r"<[a-z]+>", "x", pattern).replace("…", "seat.json")
    yield "plg_coordinator/x/lock-x/nodes/x.json"


def check_policy(path):
    policy = json.loads(path.read_text())
    if path.name == "identity-policy.json":
        guide = re.search(r"```json\n(.*?)```", (DOCS / "guide/s3.md").read_text(), re.DOTALL)
        if policy != json.loads(guide[1]):
            yield "is not the policy of docs/guide/s3.md"
        return
    [statement] = policy["Statement"]
    if (statement["Effect"], statement["Principal"], statement["Action"]) != ("Deny", "*", "s3:PutObject"):
        yield "must deny s3:PutObject to everybody"
    if statement["Condition"] != {"Null": {"s3:if-match": "true", "s3:if-none-match": "true"}}:
        yield "must deny what has neither If-Match nor If-None-Match, and nothing else"
    for key in keys():
        exempt = any(fnmatchcase(f"arn:aws:s3:::my-bucket/tenure/{key}", pattern) for pattern in statement["NotResource"])
        if exempt != ("/nodes/" in key or key.startswith("tenure-doctor/")):
            yield f"{key} must {'' if exempt else 'not '}be written with a condition"


ALL = [
    "kubernetes/sidecar.yaml", "kubernetes/agents.yaml", "kubernetes/nodes", "kubernetes/nodes/nodes.yaml", "kubernetes/leader",
    "helm/tenure", "compose/compose.yaml", "systemd/tenure.service", "systemd/tenure-agent.service",
    "cloud/aws", "cloud/aws/identity-policy.json", "cloud/aws/bucket-policy.json", "cloud/gcs", "cloud/azure",
]


def checker(path):
    if path.is_dir():
        for mark, check in (("Chart.yaml", check_chart), ("kustomization.yaml", check_kustomization), ("main.tf", check_terraform)):
            if (path / mark).exists():
                return check
    elif path.suffix == ".service":
        return check_unit
    elif path.suffix == ".json":
        return check_policy
    elif path.suffix in (".yaml", ".yml"):
        return check_compose if path.stem == "compose" else check_manifests
    raise SystemExit(f"{path}: there is nothing here that I can check")


def main(paths):
    wrong = False
    for path in [Path(path) for path in paths] or [HERE / name for name in ALL]:
        try:
            faults = list(checker(path)(path))
        except Skip as reason:
            print(f"skip   {path}: {reason}")
            continue
        except (ValueError, KeyError, TypeError, yaml.YAMLError, LarkError) as error:
            faults = [f"{type(error).__name__}: {error}"]
        wrong |= bool(faults)
        print("\n".join(f"FAULT  {path}: {fault}" for fault in faults) or f"ok     {path}")
    return int(wrong)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
