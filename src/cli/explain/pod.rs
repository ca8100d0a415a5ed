//! The pods of `--pod`: a Pod itself, or the pod template of a workload.

use std::{fs, io::Read as _};

use anyhow::anyhow;
use k8s_openapi::api::core::v1::PodSpec;
use rules::{PodNeeds, pod::not_looked_at};
use serde::Deserialize as _;
use serde_json::Value;

use super::manifests::documents;
use page::state::explain::Pod;

/// The paths of the pod spec in some kinds.
const SPECS: [(&str, &str); 3] =
    [("Pod", "/spec"), ("PodTemplate", "/template/spec"), ("CronJob", "/spec/jobTemplate/spec/template/spec")];
/// The path in all other kinds with a pod template: Deployment, StatefulSet, DaemonSet, ReplicaSet, Job, and custom
/// ones.
const TEMPLATE: &str = "/spec/template/spec";

/// Reads the pods in a file, or on standard input (`-`).
pub(super) fn read(path: &str) -> anyhow::Result<Vec<Pod>> {
    let unreadable = |why: String| anyhow!("--pod {path}: {why}");
    let mut text = String::new();
    match path {
        "-" => std::io::stdin().lock().read_to_string(&mut text).map(|_| ()),
        path => fs::read_to_string(path).map(|read| text = read),
    }
    .map_err(|error| unreadable(format!("it can't be read: {error}")))?;
    let mut pods = Vec::new();
    for document in documents(&text) {
        let value = document.value.map_err(|broken| unreadable(broken.why))?;
        let items = match value.get("items") {
            Some(Value::Array(items)) => items.clone(),
            Some(_) | None => vec![value],
        };
        for item in items {
            pods.extend(pod(&item).map_err(|why| unreadable(format!("line {}: {why}", document.line)))?);
        }
    }
    if pods.is_empty() {
        let why = "it holds no pod: give a Pod, or what has a pod's template, such as a Deployment, a Job or a CronJob";
        return Err(unreadable(why.to_owned()));
    }
    Ok(pods)
}

/// Returns the pod of an object; `None` if it makes none.
fn pod(object: &Value) -> Result<Option<Pod>, String> {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str);
    let Some(kind) = text("/kind") else { return Ok(None) };
    let pointer = SPECS.iter().find(|(of, _)| *of == kind).map_or(TEMPLATE, |(_, pointer)| pointer);
    let Some(spec) = object.pointer(pointer).filter(|spec| spec.get("containers").is_some()) else { return Ok(None) };
    // Some kinds have a template of something else at this path.
    let name = text("/metadata/name").or_else(|| text("/metadata/generateName")).unwrap_or("(no name)");
    let name = match text("/metadata/namespace") {
        Some(namespace) => format!("{kind} {namespace}/{name}"),
        None => format!("{kind} {name}"),
    };
    let broken = |why: &dyn std::fmt::Display| format!("{name}: {why}");
    let spec = PodSpec::deserialize(spec).map_err(|error| broken(&error))?;
    let needs = PodNeeds::try_from(&spec).map_err(|error| broken(&error))?;
    let mut not_looked_at = not_looked_at(&spec);
    if object.pointer("/spec/volumeClaimTemplates").is_some() {
        not_looked_at.push("volumes of its claim templates");
    }
    Ok(Some(Pod { name, needs, not_looked_at }))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    fn spec() -> Value {
        json!({"containers": [{"name": "a", "resources": {"requests": {"cpu": "2"}}}]})
    }

    #[rstest]
    #[case::pod(json!({"kind": "Pod", "metadata": {"name": "a"}, "spec": spec()}), "Pod a")]
    #[case::deployment(
        json!({"kind": "Deployment", "metadata": {"name": "a", "namespace": "n"}, "spec": {"template": {"spec": spec()}}}),
        "Deployment n/a"
    )]
    #[case::job_without_a_name(
        json!({"kind": "Job", "metadata": {"generateName": "a-"}, "spec": {"template": {"spec": spec()}}}), "Job a-"
    )]
    #[case::cron_job(
        json!({"kind": "CronJob", "metadata": {"name": "a"},
            "spec": {"jobTemplate": {"spec": {"template": {"spec": spec()}}}}}),
        "CronJob a"
    )]
    #[case::pod_template(json!({"kind": "PodTemplate", "metadata": {"name": "a"}, "template": {"spec": spec()}}),
        "PodTemplate a")]
    fn a_pod_is_found_in(#[case] object: Value, #[case] name: &str) {
        let pod = pod(&object).unwrap().unwrap();
        assert_eq!(pod.name, name);
        assert_eq!(pod.needs.requests["cpu"].to_string(), "2");
    }

    #[rstest]
    #[case::another_kind(json!({"kind": "Service", "spec": {}}))]
    #[case::a_template_of_something_else(json!({"kind": "MachineSet", "spec": {"template": {"spec": {}}}}))]
    #[case::no_object(json!({"spec": spec()}))]
    fn there_is_no_pod_in(#[case] object: Value) {
        assert!(pod(&object).unwrap().is_none());
    }

    #[test]
    fn a_pod_that_cannot_be_read_is_named_with_what_is_wrong() {
        let object = json!({"kind": "Pod", "metadata": {"name": "a"},
            "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "two"}}}]}});
        let why = pod(&object).unwrap_err();
        assert!(why.contains("Pod a") && why.contains("container \"c\"") && why.contains("\"two\""), "{why}");
    }
}
