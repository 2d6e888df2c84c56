"""Holds manifests to the schemas that their projects publish, and prints a line for each: manifests.py FILE...

Kubernetes' own objects are held to its strict schemas (kubernetes-validate). Kubeflow's and JobSet's are held to the
models of Kubeflow's packages for Python, and the pods within them to Kubernetes' schemas again.
"""
import pathlib
import sys

import kubernetes_validate
import yaml
from kubeflow.training import models as training
from kubeflow_trainer_api import models as trainer


def check_pod(template):
    pods = {"apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": "pod"}, "template": template}
    kubernetes_validate.validate(pods, kubernetes_validate.latest_version(), strict=True)


def check_job(template):
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "job", **template.get("metadata", {})}, "spec": template["spec"]}
    kubernetes_validate.validate(job, kubernetes_validate.latest_version(), strict=True)


def check_trainer(kind, document):
    """Objects of pydantic drop what they do not know."""
    model = getattr(trainer, kind)
    kept = model.model_validate(document).model_dump(by_alias=True, exclude_none=True, mode="json")
    lost = differences(document, kept, "")
    if lost:
        raise ValueError(f"{document['kind']}: the model does not keep {lost}")


def differences(given, kept, path):
    if isinstance(given, dict) and isinstance(kept, dict):
        return [each for key, value in given.items() for each in (differences(value, kept[key], f"{path}.{key}") if key in kept else [f"{path}.{key}"])]
    if isinstance(given, list) and isinstance(kept, list) and len(given) == len(kept):
        return [each for i, value in enumerate(given) for each in differences(value, kept[i], f"{path}[{i}]")]
    return [] if given == kept else [f"{path}: {given!r}, kept as {kept!r}"]


def check_training(kind, value, path):
    """The classes say the names and the types of their fields."""
    if kind.startswith("V1"):  # of Kubernetes
        return
    model = getattr(training, kind)
    fields = {name: kind_of for key, name in model.attribute_map.items() for kind_of in [model.openapi_types[key]]}
    for key, each in value.items():
        if key not in fields:
            raise ValueError(f"{path} has no field {key}")
        kind_of = fields[key]
        if kind_of.startswith("dict(str, "):
            for name, inner in each.items():
                check_training(kind_of[len("dict(str, "):-1], inner, f"{path}.{key}.{name}")
        elif isinstance(each, dict):
            check_training(kind_of, each, f"{path}.{key}")
        elif not isinstance(each, {"str": str, "int": int, "bool": bool}[kind_of]):
            raise ValueError(f"{path}.{key} is {each!r}, wanted {kind_of}")


def check_jobset_spec(spec):
    for each in spec["replicatedJobs"]:
        check_job(each["template"])


def check(document):
    group, kind = document["apiVersion"], document["kind"]
    if group == "kubeflow.org/v1":
        check_training(f"KubeflowOrgV1{kind}", document, kind)
        specs = next(value for key, value in document["spec"].items() if key.endswith("ReplicaSpecs"))
        for each in specs.values():
            check_pod(each["template"])
    elif group == "jobset.x-k8s.io/v1alpha2":
        check_trainer("JobsetV1alpha2JobSet", document)
        check_jobset_spec(document["spec"])
    elif group == "trainer.kubeflow.org/v1alpha1":
        check_trainer(f"TrainerV1alpha1{kind}", document)
        if "template" in document["spec"]:
            check_jobset_spec(document["spec"]["template"]["spec"])
    else:
        kubernetes_validate.validate(document, kubernetes_validate.latest_version(), strict=True)


def verdict(file):
    """Returns the kinds of the objects, or the error."""
    try:
        documents = list(yaml.safe_load_all(file.read_text(encoding="utf-8")))
        for each in documents:
            check(each)
        return " ".join(each["kind"] for each in documents)
    except Exception as error:  # of any of the packages
        return f"refused, {type(error).__name__}: {error}".splitlines()[0]


for name in sys.argv[1:]:
    print(f"{name}: {verdict(pathlib.Path(name))}")
