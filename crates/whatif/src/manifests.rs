//! Reads manifests and dumps, applies the changes that are asked for, and splits the objects into those of the
//! management cluster and those of the workload cluster.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::Read as _,
    path::Path,
};

use anyhow::{Context as _, anyhow, bail, ensure};
use rules::GoDuration;
use sandbox::{Contract, Object, link_owners, manifests_in, read_manifests};
use serde_json::{Value, json};

use crate::state::{is_finished, title, title_of};

/// The group of Cluster API's own kinds; its providers' groups end with it.
pub(crate) const CLUSTER_API: &str = "cluster.x-k8s.io";
/// OpenShift's group of Machines, whose controllers the sandbox lacks.
const MACHINE_API: &str = "machine.openshift.io";
/// The name of an object that is made from its `generateName`.
const FIRST: &str = "1";

/// The prefix of the annotations that override Cluster Autoscaler's times for a group.
const OPTIONS: &str = "cluster.x-k8s.io/autoscaling-options-";
/// Those of them that are times.
const TIMES: [&str; 3] = ["scaledownunneededtime", "scaledownunreadytime", "maxnodeprovisiontime"];

/// Kinds whose controllers change Pods or Nodes, and aren't simulated.
const OTHER_CONTROLLERS: [&str; 7] = [
    "HorizontalPodAutoscaler",
    "VerticalPodAutoscaler",
    "ScaledObject",
    "CronJob",
    "LimitRange",
    "ResourceQuota",
    "MachineHealthCheck",
];

/// The controllers whose Pods are replaced.
pub(crate) const REPLICATED: [&str; 5] = ["ReplicaSet", "StatefulSet", "DaemonSet", "Job", "ReplicationController"];

/// A change of the manifests.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// The objects of a file are added so many times.
    Add {
        /// The number of times.
        times: usize,
        /// The file.
        path: String,
    },
    /// An object is removed, with everything that it owns.
    Remove(Named),
    /// An object is changed by a JSON merge patch.
    Patch(Named, Value),
}

/// The name of an object, as people type it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Named {
    /// The kind, its plural, or its short name, in lower case.
    pub kind: String,
    /// The namespace; empty for `default`, or an object without one.
    pub namespace: String,
    /// The name.
    pub name: String,
}

const SHORT: [(&str, &str); 9] = [
    ("deploy", "deployment"),
    ("ds", "daemonset"),
    ("rs", "replicaset"),
    ("sts", "statefulset"),
    ("po", "pod"),
    ("no", "node"),
    ("md", "machinedeployment"),
    ("ms", "machineset"),
    ("mp", "machinepool"),
];

impl Change {
    /// Parses the value of `--add`: `FILE`, or `NxFILE`.
    pub fn add(text: &str) -> Self {
        let counted = ['x', '×'].into_iter().find_map(|sign| {
            let (times, path) = text.split_once(sign)?;
            Some((times.trim().parse::<usize>().ok().filter(|times| *times > 0)?, path.trim().to_owned()))
        });
        match counted {
            // A file may have such a name itself.
            Some((times, path)) if !Path::new(text).exists() => Self::Add { times, path },
            Some(_) | None => Self::Add { times: 1, path: text.to_owned() },
        }
    }

    /// Parses the value of `--remove`.
    pub fn remove(text: &str) -> anyhow::Result<Self> {
        Ok(Self::Remove(named(text).with_context(|| format!("--remove {text}"))?))
    }

    /// Parses the value of `--patch`.
    pub fn patch(text: &str) -> anyhow::Result<Self> {
        let what = || format!("--patch {text}");
        let (name, patch) = text.split_once('=').context("it has to be KIND/NAMESPACE/NAME=JSON").with_context(what)?;
        let patch: Value = serde_yaml::from_str(patch).context("its patch is no JSON").with_context(what)?;
        ensure!(patch.is_object(), "{}: its patch has to be a JSON object", what());
        Ok(Self::Patch(named(name).with_context(what)?, patch))
    }
}

fn named(text: &str) -> anyhow::Result<Named> {
    let parts: Vec<&str> = text.split('/').collect();
    let (kind, namespace, name) = match parts.as_slice() {
        [kind, name] => (kind, "", name),
        [kind, namespace, name] => (kind, *namespace, name),
        _ => bail!("it has to be KIND/NAME or KIND/NAMESPACE/NAME"),
    };
    let kind = kind.to_lowercase();
    let long = SHORT.iter().find(|(short, _)| *short == kind).map(|(_, long)| (*long).to_owned());
    Ok(Named { kind: long.unwrap_or(kind), namespace: namespace.to_owned(), name: (*name).to_owned() })
}

impl Named {
    fn is(&self, object: &Value) -> bool {
        let kind = object.kind().to_lowercase();
        let plural = format!("{kind}s");
        let namespace = if object.namespace().is_empty() { "default" } else { object.namespace() };
        (self.kind == kind || self.kind == plural)
            && self.name == object.name()
            && (self.namespace == namespace
                || self.namespace.is_empty() && matches!(object.namespace(), "" | "default"))
    }

    fn title(&self) -> String {
        title(&self.kind, &self.namespace, &self.name)
    }
}

/// The objects of both clusters.
#[derive(Clone, Debug)]
pub(crate) struct Manifests {
    pub(crate) management: Vec<Value>,
    pub(crate) workload: Vec<Value>,
    pub(crate) contract: Contract,
    /// Namespace and name of the Cluster, if it is known.
    pub(crate) cluster: Option<(String, String)>,
    /// What isn't simulated.
    pub(crate) not_simulated: Vec<String>,
}

/// Reads all objects of the given files.
pub(crate) fn read(paths: &[String]) -> anyhow::Result<Vec<Value>> {
    let mut objects = Vec::new();
    for path in paths {
        objects.extend(read_one(path)?);
    }
    Ok(objects)
}

fn read_one(path: &str) -> anyhow::Result<Vec<Value>> {
    let objects = if path == "-" {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text).context("can't read standard input")?;
        manifests_in(&text).context("standard input is no YAML")?
    } else {
        read_manifests(Path::new(path))?
    };
    for (at, object) in objects.iter().enumerate() {
        check(object).with_context(|| format!("{path}, object {}", at + 1))?;
    }
    Ok(objects)
}

/// Refuses what is no object, and what must not be in a dump.
fn check(object: &Value) -> anyhow::Result<()> {
    ensure!(
        object["apiVersion"].is_string() && !object.kind().is_empty(),
        "it is no Kubernetes object: it needs apiVersion and kind"
    );
    ensure!(
        !object.name().is_empty() || object.text("/metadata/generateName").is_some(),
        "{} has no metadata.name",
        object.kind()
    );
    ensure!(
        !(object.kind() == "Secret" && object.group().is_empty()),
        "{} is refused: no Secret is needed here, and none should be in a dump; name the kinds that you dump, without \
         secrets",
        title_of(object)
    );
    ensure!(
        object.group() != MACHINE_API,
        "{} isn't simulated: only Cluster API's Machines ({CLUSTER_API}) are",
        title_of(object)
    );
    Ok(())
}

/// An object's group, kind, namespace and name.
type Identity = (String, String, String, String);

fn identity(object: &Value) -> Identity {
    let text = |text: &str| text.to_owned();
    (text(object.group()), text(object.kind()), text(object.namespace()), text(object.name()))
}

/// Returns true if an object belongs to the management cluster.
fn is_managed(object: &Value) -> bool {
    let group = object.group();
    group == CLUSTER_API || group.ends_with(&format!(".{CLUSTER_API}"))
}

pub(crate) fn arrange(
    objects: Vec<Value>,
    changes: &[Change],
    cluster: Option<&str>,
    speed: u32,
) -> anyhow::Result<Manifests> {
    let mut objects = latest(objects);
    give_uids(&mut objects);
    // Dumps are often cut by hand.
    let uids: BTreeSet<String> = objects.iter().map(|object| object.uid().to_owned()).collect();
    link_owners(&mut objects, |uid| !uids.contains(uid));
    for change in changes {
        apply(&mut objects, change)?;
    }
    give_uids(&mut objects);
    let mut not_simulated = Vec::new();
    let cluster = choose_cluster(&mut objects, cluster)?;
    objects.retain(|object| object.kind() != "Pod" || !(is_finished(object) || object.deleting()));
    for object in &mut objects {
        hasten(object, speed);
    }
    note_others(&objects, &mut not_simulated);
    let (management, mut workload): (Vec<_>, Vec<_>) = objects.into_iter().partition(is_managed);
    stand_in_for_owners(&mut workload, &mut not_simulated);
    let contract = contract(&management)?;
    Ok(Manifests { management, workload, contract, cluster, not_simulated })
}

/// Returns the objects without what only the API server says of them; of several with one name the last.
fn latest(objects: Vec<Value>) -> Vec<Value> {
    let mut by_identity: BTreeMap<Identity, usize> = BTreeMap::new();
    let mut kept: Vec<Value> = Vec::new();
    for mut object in objects {
        if let Some(metadata) = object["metadata"].as_object_mut() {
            metadata.remove("managedFields");
            metadata.remove("resourceVersion");
            if !metadata.contains_key("name")
                && let Some(prefix) = metadata.remove("generateName")
            {
                metadata.insert("name".to_owned(), json!(format!("{}{FIRST}", prefix.as_str().unwrap_or_default())));
            }
        }
        if let Some(&at) = by_identity.get(&identity(&object)) {
            if object.uid().is_empty() && !kept[at].uid().is_empty() {
                object["metadata"]["uid"] = kept[at]["metadata"]["uid"].clone();
            }
            kept[at] = object;
        } else {
            by_identity.insert(identity(&object), kept.len());
            kept.push(object);
        }
    }
    kept
}

fn give_uids(objects: &mut [Value]) {
    let mut taken: BTreeSet<String> = objects.iter().map(|object| object.uid().to_owned()).collect();
    let mut number = 0_u64;
    for object in objects.iter_mut().filter(|object| object.uid().is_empty()) {
        let uid = loop {
            number += 1;
            let uid = format!("00000000-0000-4000-8000-{number:012x}");
            if taken.insert(uid.clone()) {
                break uid;
            }
        };
        object["metadata"]["uid"] = json!(uid);
    }
}

fn apply(objects: &mut Vec<Value>, change: &Change) -> anyhow::Result<()> {
    let find = |objects: &[Value], named: &Named, flag: &str| {
        let position = objects.iter().position(|object| named.is(object));
        position.with_context(|| format!("{flag} {}: the manifests have no such object", named.title()))
    };
    match change {
        Change::Add { times, path } => {
            let added = read_one(path).with_context(|| format!("--add {path}"))?;
            let known: BTreeSet<Identity> = objects.iter().map(identity).collect();
            for object in (1..=*times).flat_map(|number| added.iter().map(move |object| copy(object, number, *times))) {
                ensure!(
                    !known.contains(&identity(&object)),
                    "--add {path}: {} is in the manifests already: give it another name",
                    title_of(&object)
                );
                objects.push(object);
            }
        }
        Change::Remove(named) => {
            let at = find(objects, named, "--remove")?;
            let gone = objects[at].uid().to_owned();
            remove(objects, gone);
        }
        Change::Patch(named, patch) => {
            let at = find(objects, named, "--patch")?;
            let before = objects[at].clone();
            json_patch::merge(&mut objects[at], patch);
            check(&objects[at]).with_context(|| format!("--patch {}", named.title()))?;
            ensure!(
                identity(&before) == identity(&objects[at]),
                "--patch {}: it must not change the name",
                named.title()
            );
            // What a template makes is made anew, as after a rollout.
            if before.pointer("/spec/template") != objects[at].pointer("/spec/template") && !is_managed(&before) {
                let uid = before.uid().to_owned();
                remove_owned(objects, uid);
            }
        }
    }
    Ok(())
}

fn copy(object: &Value, number: usize, of: usize) -> Value {
    let mut copy = object.clone();
    let generated = object.name().is_empty();
    let prefix = object.text("/metadata/generateName").unwrap_or_default().to_owned();
    if let Some(metadata) = copy["metadata"].as_object_mut() {
        for field in ["uid", "resourceVersion", "managedFields", "generateName", "creationTimestamp"] {
            metadata.remove(field);
        }
    }
    if generated {
        copy["metadata"]["name"] = json!(format!("{prefix}{number}"));
    } else if of > 1 {
        copy["metadata"]["name"] = json!(format!("{}-{number}", object.name()));
    }
    if object.namespace().is_empty() && !is_managed(object) && object.kind() != "Node" {
        copy["metadata"]["namespace"] = json!("default");
    }
    copy
}

fn remove(objects: &mut Vec<Value>, uid: String) {
    objects.retain(|object| object.uid() != uid);
    remove_owned(objects, uid);
}

/// Removes everything that an object owns, and what that owns.
fn remove_owned(objects: &mut Vec<Value>, uid: String) {
    let mut gone = BTreeSet::from([uid]);
    loop {
        let before = objects.len();
        let is_owned = |object: &Value, gone: &BTreeSet<String>| {
            object
                .list("/metadata/ownerReferences")
                .iter()
                .any(|owner| owner["uid"].as_str().is_some_and(|uid| gone.contains(uid)))
        };
        let owned: Vec<String> =
            objects.iter().filter(|object| is_owned(object, &gone)).map(|object| object.uid().to_owned()).collect();
        objects.retain(|object| !is_owned(object, &gone));
        gone.extend(owned);
        if objects.len() == before {
            return;
        }
    }
}

/// Returns namespace and name of the Cluster, and drops the objects of others.
fn choose_cluster(objects: &mut Vec<Value>, chosen: Option<&str>) -> anyhow::Result<Option<(String, String)>> {
    let name_of = |object: &Value| {
        let name = object.text("/spec/clusterName").filter(|_| object.group() == CLUSTER_API)?;
        Some((object.namespace().to_owned(), name.to_owned()))
    };
    let clusters: BTreeSet<(String, String)> = objects.iter().filter_map(name_of).collect();
    let cluster = if let Some(text) = chosen {
        let (namespace, name) =
            text.split_once('/').ok_or_else(|| anyhow!("--cluster {text}: it has to be NAMESPACE/NAME"))?;
        let key = (namespace.to_owned(), name.to_owned());
        ensure!(clusters.contains(&key), "--cluster {text}: no Machine or group of the manifests is of it");
        key
    } else {
        let mut all = clusters.iter();
        match (all.next(), all.next()) {
            (None, _) => return Ok(None),
            (Some(only), None) => only.clone(),
            (Some(_), Some(_)) => {
                let names: Vec<_> = clusters.iter().map(|(namespace, name)| format!("{namespace}/{name}")).collect();
                bail!(
                    "the manifests have the Clusters {}: choose one by --cluster, and dump the Nodes of that one",
                    names.join(", ")
                );
            }
        }
    };
    objects.retain(|object| name_of(object).is_none_or(|of| of == cluster));
    Ok(Some(cluster))
}

/// Shortens the times that annotations give to a group, as Cluster Autoscaler's own times are.
fn hasten(object: &mut Value, speed: u32) {
    let Some(annotations) = object["metadata"]["annotations"].as_object_mut() else { return };
    for time in TIMES {
        if let Some(value) = annotations.get_mut(&format!("{OPTIONS}{time}"))
            && let Some(duration) = value.as_str().and_then(|text| text.parse::<GoDuration>().ok())
        {
            *value = json!(GoDuration::from_nanos(duration.as_nanos() / i64::from(speed)).to_string());
        }
    }
}

fn note_others(objects: &[Value], not_simulated: &mut Vec<String>) {
    for kind in OTHER_CONTROLLERS {
        let count = objects.iter().filter(|object| object.kind() == kind).count();
        if count > 0 {
            not_simulated.push(format!("{count} × {kind}: its controller doesn't run here"));
        }
    }
    let has_topology = |object: &&Value| object.kind() == "Cluster" && object.pointer("/spec/topology").is_some();
    for cluster in objects.iter().filter(has_topology) {
        not_simulated.push(format!(
            "the topology of {}: node groups that Cluster API would make of it have to be in the manifests",
            title_of(cluster)
        ));
    }
    let custom: BTreeSet<&str> = objects
        .iter()
        .filter(|object| object.kind() == "Pod")
        .filter_map(|pod| pod.controller()?["kind"].as_str())
        .filter(|kind| !REPLICATED.contains(kind) && *kind != "Node")
        .collect();
    for kind in custom {
        not_simulated.push(format!("{kind}: its Pods aren't replaced when they are evicted"));
    }
}

/// Makes the controllers of Pods that the manifests lack: without them Cluster Autoscaler moves no such Pod, and nothing
/// would replace it.
fn stand_in_for_owners(workload: &mut Vec<Value>, not_simulated: &mut Vec<String>) {
    let uids: BTreeSet<&str> = workload.iter().map(Object::uid).collect();
    let mut missing: BTreeMap<(String, String, String), Vec<&Value>> = BTreeMap::new();
    for pod in workload.iter().filter(|object| object.kind() == "Pod") {
        let Some(owner) = pod.controller() else { continue };
        let field = |field: &str| owner[field].as_str().unwrap_or_default();
        if REPLICATED.contains(&field("kind")) && !uids.contains(field("uid")) {
            let key = (field("kind").to_owned(), pod.namespace().to_owned(), field("name").to_owned());
            missing.entry(key).or_default().push(pod);
        }
    }
    let mut made = Vec::new();
    for ((kind, namespace, name), pods) in &missing {
        made.push(stand_in(kind, namespace, name, pods));
    }
    if !made.is_empty() {
        let count: usize = missing.values().map(Vec::len).sum();
        let examples: Vec<_> = made.iter().take(3).map(title_of).collect();
        not_simulated.push(format!(
            "changes of {} controllers that aren't in the manifests, such as {}: they are kept at the number of their \
             Pods ({count}). Dump daemonsets, deployments, replicasets, statefulsets and jobs, too",
            made.len(),
            examples.join(", ")
        ));
    }
    workload.extend(made);
}

fn stand_in(kind: &str, namespace: &str, name: &str, pods: &[&Value]) -> Value {
    let first = pods[0];
    let owner = first.controller().cloned().unwrap_or_default();
    let mut spec = first["spec"].clone();
    if let Some(spec) = spec.as_object_mut() {
        spec.remove("nodeName");
    }
    forget_node(&mut spec);
    let labels = first["metadata"]["labels"].clone();
    let count = pods.len();
    let mut made = json!({
        "apiVersion": owner["apiVersion"],
        "kind": kind,
        "metadata": {"name": name, "namespace": namespace, "uid": owner["uid"], "labels": labels},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": spec},
        },
    });
    match kind {
        "Job" => {
            made["spec"]["parallelism"] = json!(count);
            made["spec"]["completions"] = json!(count);
        }
        "DaemonSet" => {}
        _ => made["spec"]["replicas"] = json!(count),
    }
    made
}

/// Removes the requirement on a Node's name that the DaemonSet controller adds to each Pod.
fn forget_node(spec: &mut Value) {
    let required = "/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms";
    let Some(terms) = spec.pointer_mut(required).and_then(Value::as_array_mut) else { return };
    for term in terms.iter_mut().filter_map(Value::as_object_mut) {
        term.remove("matchFields");
    }
    terms.retain(|term| term.as_object().is_some_and(|term| !term.is_empty()));
    if terms.is_empty()
        && let Some(affinity) = spec.pointer_mut("/affinity/nodeAffinity").and_then(Value::as_object_mut)
    {
        affinity.remove("requiredDuringSchedulingIgnoredDuringExecution");
    }
}

/// Returns the contract version of Cluster API's objects. Nothing is converted, so that there must be one.
fn contract(management: &[Value]) -> anyhow::Result<Contract> {
    let of_cluster_api = management.iter().filter(|object| object.group() == CLUSTER_API);
    let versions: BTreeSet<&str> = of_cluster_api.filter_map(|object| object["apiVersion"].as_str()).collect();
    let mut versions = versions.into_iter().filter_map(|version| version.rsplit_once('/')).map(|(_, version)| version);
    match (versions.next(), versions.next()) {
        (Some("v1beta1"), None) => Ok(Contract::V1Beta1),
        (Some("v1beta2") | None, _) => Ok(Contract::V1Beta2),
        (Some(one), None) => bail!("the manifests have {CLUSTER_API}/{one}: dump v1beta1 or v1beta2"),
        (Some(one), Some(other)) => bail!(
            "the manifests have {CLUSTER_API}/{one} and {CLUSTER_API}/{other}: dump all objects in one version, for \
             example kubectl get machines.{other}.{CLUSTER_API}"
        ),
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn pod(name: &str, owner: (&str, &str, &str)) -> Value {
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": name, "namespace": "shop", "uid": name, "labels": {"app": "web"},
                "ownerReferences": [{"apiVersion": "apps/v1", "kind": owner.0, "name": owner.1, "uid": owner.2, "controller": true}],
            },
            "spec": {"nodeName": "node-1", "containers": [{"name": "a"}]},
            "status": {"phase": "Running"},
        })
    }

    fn replica_set() -> Value {
        json!({
            "apiVersion": "apps/v1", "kind": "ReplicaSet",
            "metadata": {"name": "web-1", "namespace": "shop", "uid": "rs",
                "ownerReferences": [{"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "d", "controller": true}]},
            "spec": {"replicas": 1},
        })
    }

    fn deployment() -> Value {
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": "shop", "uid": "d"},
            "spec": {"replicas": 1, "template": {"spec": {"containers": [{"name": "a"}]}}}})
    }

    fn names(objects: &[Value]) -> Vec<String> {
        objects.iter().map(title_of).collect()
    }

    #[rstest]
    #[case("job.yaml", 1, "job.yaml")]
    #[case("40xjob.yaml", 40, "job.yaml")]
    #[case("40×job.yaml", 40, "job.yaml")]
    #[case("0xjob.yaml", 1, "0xjob.yaml")]
    #[case("max.yaml", 1, "max.yaml")]
    fn objects_are_added_so_many_times(#[case] text: &str, #[case] times: usize, #[case] path: &str) {
        assert_eq!(Change::add(text), Change::Add { times, path: path.to_owned() });
    }

    #[test]
    fn an_object_goes_with_all_that_it_owns() {
        let objects = vec![deployment(), replica_set(), pod("web-1-a", ("ReplicaSet", "web-1", "rs"))];
        let changes = [Change::remove("deploy/shop/web").unwrap()];
        let arranged = arrange(objects, &changes, None, 1).unwrap();
        assert!(arranged.workload.is_empty(), "{:?}", names(&arranged.workload));
    }

    #[test]
    fn a_patched_template_is_made_anew_and_a_patched_size_is_not() {
        let objects = || vec![deployment(), replica_set(), pod("web-1-a", ("ReplicaSet", "web-1", "rs"))];
        let patched = |patch: &str| {
            let change = Change::patch(&format!("deployment/shop/web={patch}")).unwrap();
            names(&arrange(objects(), &[change], None, 1).unwrap().workload)
        };
        assert_eq!(patched(r#"{"spec":{"replicas":2}}"#).len(), 3);
        assert_eq!(
            patched(r#"{"spec":{"template":{"spec":{"nodeSelector":{"disk":"ssd"}}}}}"#),
            ["Deployment shop/web"]
        );
    }

    #[rstest]
    #[case::no_such_object("pod/shop/none={}", "the manifests have no such object")]
    #[case::another_name("deployment/shop/web={\"metadata\":{\"name\":\"a\"}}", "must not change the name")]
    fn a_patch_that_cannot_be_applied_is_an_error(#[case] text: &str, #[case] part: &str) {
        let error = arrange(vec![deployment()], &[Change::patch(text).unwrap()], None, 1).unwrap_err();
        assert!(format!("{error:#}").contains(part), "{error:#}");
    }

    #[test]
    fn pods_without_their_controller_get_one() {
        let pods = ["a", "b"].map(|name| pod(name, ("ReplicaSet", "web-1", "gone")));
        let arranged = arrange(pods.into(), &[], None, 1).unwrap();
        let made = &arranged.workload[2];
        assert_eq!((title_of(made).as_str(), made.uid()), ("ReplicaSet shop/web-1", "gone"));
        assert_eq!(made["spec"]["replicas"], 2);
        assert!(made.pointer("/spec/template/spec/nodeName").is_none());
        assert!(arranged.not_simulated[0].contains("ReplicaSet shop/web-1"), "{:?}", arranged.not_simulated);
    }

    #[test]
    fn owners_are_found_by_name_where_no_object_has_the_uid() {
        let arranged = arrange(vec![replica_set(), pod("a", ("ReplicaSet", "web-1", "1"))], &[], None, 1).unwrap();
        assert_eq!(arranged.workload[1]["metadata"]["ownerReferences"][0]["uid"], "rs");
        assert_eq!(arranged.workload.len(), 2);
    }

    #[test]
    fn later_objects_replace_earlier_ones() {
        let mut changed = deployment();
        changed["spec"]["replicas"] = json!(7);
        let arranged = arrange(vec![deployment(), changed], &[], None, 1).unwrap();
        assert_eq!(arranged.workload.len(), 1);
        assert_eq!(arranged.workload[0]["spec"]["replicas"], 7);
    }

    #[test]
    fn several_clusters_need_a_choice() {
        let group = |cluster: &str| {
            json!({"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "MachineDeployment",
            "metadata": {"name": cluster, "namespace": "team-a"}, "spec": {"clusterName": cluster}})
        };
        let objects = || vec![group("prod"), group("test")];
        let error = arrange(objects(), &[], None, 1).unwrap_err().to_string();
        assert!(error.contains("team-a/prod, team-a/test") && error.contains("--cluster"), "{error}");
        let arranged = arrange(objects(), &[], Some("team-a/test"), 1).unwrap();
        assert_eq!(names(&arranged.management), ["MachineDeployment team-a/test"]);
        assert_eq!(arranged.cluster, Some(("team-a".to_owned(), "test".to_owned())));
    }

    #[test]
    fn times_of_groups_are_shortened() {
        let mut group = json!({"metadata": {"annotations": {
            "cluster.x-k8s.io/autoscaling-options-scaledownunneededtime": "20m",
            "cluster.x-k8s.io/autoscaling-options-scaledownutilizationthreshold": "0.5",
        }}});
        hasten(&mut group, 60);
        assert_eq!(
            group["metadata"]["annotations"]["cluster.x-k8s.io/autoscaling-options-scaledownunneededtime"],
            "20s"
        );
    }

    #[test]
    fn secrets_are_refused() {
        let error = check(&json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a", "namespace": "n"}}));
        assert!(error.unwrap_err().to_string().starts_with("Secret n/a is refused"));
    }
}
