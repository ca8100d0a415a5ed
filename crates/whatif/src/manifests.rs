//! Reads manifests and dumps, applies the changes that are asked for, and splits the objects into those of the
//! management cluster and those of the workload cluster.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::Read as _,
    path::Path,
    time::Duration,
};

use anyhow::{Context as _, anyhow, bail, ensure};
use rules::{GoDuration, Quantity};
use sandbox::{
    Contract, GroupKey, Object, api::LabelSelector, controlled_by, link_owners, manifests_in, read_manifests,
};
use serde_json::{Value, json};

use crate::{
    notes,
    observer::UPDATED,
    state::{is_finished, title, title_of},
};

/// The group of Cluster API's own kinds; its providers' groups end with it.
pub(crate) const CLUSTER_API: &str = "cluster.x-k8s.io";
/// OpenShift's group of Machines, whose controllers the sandbox lacks.
const MACHINE_API: &str = "machine.openshift.io";
/// The group of the files from which kustomize builds manifests.
const KUSTOMIZE: &str = "kustomize.config.k8s.io";
/// The group of permissions, whose names other kinds can't have.
const RBAC: &str = "rbac.authorization.k8s.io";

/// The annotations of groups and Pods that override Cluster Autoscaler's times, with its flags for the same.
const TIMES: [(&str, &str); 4] = [
    ("cluster.x-k8s.io/autoscaling-options-scaledownunneededtime", "scale-down-unneeded-time"),
    ("cluster.x-k8s.io/autoscaling-options-scaledownunreadytime", "scale-down-unready-time"),
    ("cluster.x-k8s.io/autoscaling-options-maxnodeprovisiontime", "max-node-provision-time"),
    ("cluster-autoscaler.kubernetes.io/pod-scale-up-delay", "new-pod-scale-up-delay"),
];

/// The annotations of a Node that name its Machine.
const MACHINE_OF: [&str; 2] = ["cluster.x-k8s.io/cluster-namespace", "cluster.x-k8s.io/machine"];

const CLUSTER_SCOPED: [&str; 14] = [
    "CSIDriver",
    "CSINode",
    "CustomResourceDefinition",
    "DeviceClass",
    "DeviceTaintRule",
    "Namespace",
    "Node",
    "PersistentVolume",
    "PriorityClass",
    "ResourceSlice",
    "RuntimeClass",
    "StorageClass",
    "VolumeAttachment",
    "VolumeAttributesClass",
];

/// The template of a controller or a group, in its object.
const TEMPLATE: &str = "/spec/template";
/// The references of a group to templates, in its object.
const REFERENCES: [&str; 2] = ["/spec/template/spec/infrastructureRef", "/spec/template/spec/bootstrap/configRef"];
/// The topology of a Cluster, in its object.
const TOPOLOGY: &str = "/spec/topology";

/// The labels by which a Job knows its own Pods.
const OF_JOB: [&str; 4] =
    ["batch.kubernetes.io/controller-uid", "batch.kubernetes.io/job-name", "controller-uid", "job-name"];

/// The fields of a template to which the API server gives no default: one that a manifest lacks was removed.
const WITHOUT_DEFAULT: [&str; 8] = [
    "affinity",
    "labels",
    "nodeSelector",
    "priorityClassName",
    "resources",
    "taints",
    "tolerations",
    "topologySpreadConstraints",
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

const SHORT: [(&str, &str); 15] = [
    ("cm", "configmap"),
    ("deploy", "deployment"),
    ("ds", "daemonset"),
    ("rs", "replicaset"),
    ("sts", "statefulset"),
    ("po", "pod"),
    ("no", "node"),
    ("md", "machinedeployment"),
    ("ms", "machineset"),
    ("mp", "machinepool"),
    ("pc", "priorityclass"),
    ("pdb", "poddisruptionbudget"),
    ("pv", "persistentvolume"),
    ("pvc", "persistentvolumeclaim"),
    ("rc", "replicationcontroller"),
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
        let namespace = namespace_of(object);
        self.kind.strip_prefix(&kind).is_some_and(|plural| matches!(plural, "" | "s" | "es"))
            && self.name == object.name()
            && (self.namespace == namespace || self.namespace.is_empty() && namespace == "default")
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
    /// The groups whose new Nodes aren't like those that they have.
    pub(crate) changed: BTreeSet<GroupKey>,
    /// The longest times that annotations state, by the flags for the same.
    pub(crate) waits: BTreeMap<&'static str, Duration>,
}

/// Reads all objects of the given files, and notes what is passed over.
pub(crate) fn read(paths: &[String], notes: &mut Vec<String>) -> anyhow::Result<Vec<Value>> {
    let mut objects = Vec::new();
    for path in paths {
        objects.extend(read_one(path, notes)?);
    }
    Ok(objects)
}

fn read_one(path: &str, notes: &mut Vec<String>) -> anyhow::Result<Vec<Value>> {
    let mut is_folder = false;
    let objects = if path == "-" {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text).context("can't read standard input")?;
        manifests_in(&text).context("standard input is no YAML")?
    } else {
        is_folder = Path::new(path).is_dir();
        read_manifests(Path::new(path))?
    };
    let path = if path == "-" { "standard input" } else { path };
    ensure!(!objects.is_empty(), "{path} has no objects: if a command writes it, see whether that failed");
    let (unbuilt, mut objects): (Vec<_>, Vec<_>) = objects.into_iter().partition(is_kustomization);
    if !unbuilt.is_empty() {
        notes.push(format!(
            "{} Kustomizations in {path}: they aren't built. Pass what kustomize builds of them, as in kustomize build … \
             | whatif -f dump.yaml -f -",
            unbuilt.len()
        ));
    }
    if is_folder {
        let count = objects.len();
        objects.retain(is_object);
        if objects.len() < count {
            notes.push(format!(
                "{} documents in {path}: they have no apiVersion and kind, so that they are no Kubernetes objects",
                count - objects.len()
            ));
        }
    }
    for (at, object) in objects.iter().enumerate() {
        check(object).with_context(|| format!("{path}, object {}", at + 1))?;
    }
    Ok(objects)
}

fn is_object(object: &Value) -> bool {
    object["apiVersion"].is_string() && !object.kind().is_empty()
}

/// Returns true for a file of kustomize, which may lack its kind.
fn is_kustomization(object: &Value) -> bool {
    object.group() == KUSTOMIZE || !is_object(object) && object["resources"].is_array()
}

/// Refuses what is no object, and what must not be in a dump.
fn check(object: &Value) -> anyhow::Result<()> {
    ensure!(is_object(object), "it is no Kubernetes object: it needs apiVersion and kind");
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
    (text(object.group()), text(object.kind()), text(namespace_of(object)), text(object.name()))
}

/// Returns the namespace that an object gets; that of one that has none doesn't matter.
pub(crate) fn namespace_of(object: &Value) -> &str {
    if object.namespace().is_empty() { "default" } else { object.namespace() }
}

pub(crate) fn key_of(object: &Value) -> GroupKey {
    (object.kind().to_owned(), namespace_of(object).to_owned(), object.name().to_owned())
}

/// Returns true if an object belongs to the management cluster.
pub(crate) fn is_managed(object: &Value) -> bool {
    let group = object.group();
    group == CLUSTER_API || group.ends_with(&format!(".{CLUSTER_API}"))
}

pub(crate) fn arrange(
    objects: Vec<Value>,
    changes: &[Change],
    cluster: Option<&str>,
    speed: u32,
) -> anyhow::Result<Manifests> {
    let (mut objects, replaced) = latest(objects)?;
    give_uids(&mut objects);
    // Dumps are often cut by hand.
    let uids: BTreeSet<String> = objects.iter().map(|object| object.uid().to_owned()).collect();
    link_owners(&mut objects, |uid| !uids.contains(uid));
    link_nodes(&mut objects);
    align_versions(&mut objects);
    let replaced: Vec<_> = replaced.into_iter().map(|(at, before)| (before, objects[at].clone())).collect();
    objects.retain(|object| object.kind() != "Pod" || !(is_finished(object) || object.deleting()));
    let (mut not_simulated, mut affected) = (Vec::new(), BTreeSet::new());
    check_machines(&objects)?;
    stand_in_for_owners(&mut objects, &mut not_simulated);
    notes::missing(&objects, &mut not_simulated);
    for (before, after) in &replaced {
        follow(&mut objects, before, after, &mut affected);
    }
    for change in changes {
        apply(&mut objects, change, &mut affected, &mut not_simulated)?;
    }
    objects.retain(is_needed);
    give_uids(&mut objects);
    let cluster = choose_cluster(&mut objects, cluster)?;
    let mut waits = BTreeMap::new();
    for object in &mut objects {
        hasten(object, speed, &mut waits);
    }
    notes::others(&objects, &mut not_simulated);
    notes::topology(&objects, cluster.as_ref(), &affected, &mut not_simulated);
    let (management, workload): (Vec<_>, Vec<_>) = objects.into_iter().partition(is_managed);
    follow_templates(&management, &mut affected);
    let contract = contract(&management)?;
    Ok(Manifests { management, workload, contract, cluster, not_simulated, changed: affected, waits })
}

/// Returns true unless an object says nothing that is read here, or what Cluster Autoscaler said in the dumped cluster.
fn is_needed(object: &Value) -> bool {
    let is_status = object.kind() == "ConfigMap" && object.annotation(UPDATED).is_some();
    !(is_status || object.kind() == "Event" || object.group() == RBAC)
}

/// Returns the objects without what only the API server says of them, of several with one name the last; and those that
/// a manifest replaces, by its place.
fn latest(objects: Vec<Value>) -> anyhow::Result<(Vec<Value>, BTreeMap<usize, Value>)> {
    let mut by_identity: BTreeMap<Identity, usize> = BTreeMap::new();
    let mut kept: Vec<Value> = Vec::new();
    let mut replaced: BTreeMap<usize, Value> = BTreeMap::new();
    let mut number = 0;
    for mut object in objects {
        if let Some(metadata) = object["metadata"].as_object_mut() {
            metadata.remove("managedFields");
            metadata.remove("resourceVersion");
        }
        give_name(&mut object, &mut number, |identity| by_identity.contains_key(identity));
        if let Some(&at) = by_identity.get(&identity(&object)) {
            ensure!(
                object.uid().is_empty() || !kept[at].uid().is_empty(),
                "{} of the manifests is replaced by a dump after it: pass the dump first, and then what changes",
                title_of(&object)
            );
            let is_manifest = object.uid().is_empty();
            replace(&kept[at], &mut object);
            let before = std::mem::replace(&mut kept[at], object);
            // A later dump has all that depends on it, too.
            if is_manifest {
                replaced.entry(at).or_insert(before);
            }
        } else {
            by_identity.insert(identity(&object), kept.len());
            kept.push(object);
        }
    }
    Ok((kept, replaced))
}

/// Names an object that states only how its name begins.
fn give_name(object: &mut Value, number: &mut u64, is_taken: impl Fn(&Identity) -> bool) {
    let prefix = object.text("/metadata/generateName").filter(|_| object.name().is_empty());
    let Some(prefix) = prefix.map(str::to_owned) else { return };
    object.unset("/metadata/generateName");
    while object.name().is_empty() || is_taken(&identity(object)) {
        *number += 1;
        object["metadata"]["name"] = json!(format!("{prefix}{number}"));
    }
}

/// Lets a manifest replace an object as kubectl apply does: what it leaves to the API server and to controllers stays,
/// and so does a template that says the same.
fn replace(known: &Value, manifest: &mut Value) {
    for place in [
        "/metadata/namespace",
        "/metadata/uid",
        "/metadata/creationTimestamp",
        "/metadata/generation",
        "/metadata/ownerReferences",
        "/spec/replicas",
        "/spec/selector",
    ] {
        manifest.set_default(place, known.pointer(place).cloned().unwrap_or_default());
    }
    if manifest.kind() != "Pod" {
        manifest.set_default("/status", known["status"].clone());
    }
    for place in [TEMPLATE, TOPOLOGY] {
        if let (Some(says), Some(value)) = (manifest.pointer(place), known.pointer(place))
            && is_said(says, value)
        {
            manifest.set(place, value.clone());
        }
    }
}

/// Returns true if a value of the API server, which fills in defaults, is what a manifest says.
fn is_said(manifest: &Value, known: &Value) -> bool {
    match manifest {
        Value::Object(fields) => {
            // Cluster API sets its own labels, and the versions of references.
            let is_stated = |key: &String| key != "apiVersion" && !key.starts_with("cluster.x-k8s.io/");
            fields.iter().filter(|(key, _)| is_stated(key)).all(|(key, value)| is_said(value, &known[key.as_str()]))
                && WITHOUT_DEFAULT.iter().all(|field| is_said(&known[*field], &manifest[*field]))
        }
        Value::Array(items) => {
            let others = known.as_array().map(Vec::as_slice).unwrap_or_default();
            items.len() == others.len() && items.iter().zip(others).all(|(item, other)| is_said(item, other))
        }
        Value::Null => true,
        // What is empty isn't stored.
        one if known.is_null() => one == false || one == "",
        one => one == known || amount(one).is_some_and(|said| amount(known) == Some(said)),
    }
}

fn amount(value: &Value) -> Option<Quantity> {
    match value {
        Value::String(text) => text.parse().ok(),
        Value::Number(number) => number.to_string().parse().ok(),
        _ => None,
    }
}

/// Lets what depends on a changed object follow it: what a template makes is made anew, as after a rollout, and new
/// Nodes of a group are as it says now.
fn follow(objects: &mut Vec<Value>, before: &Value, after: &Value, changed: &mut BTreeSet<GroupKey>) {
    if is_managed(after) {
        if described(before) != described(after) {
            changed.insert(key_of(after));
        }
    } else if before.pointer(TEMPLATE) != after.pointer(TEMPLATE) {
        remove_owned(objects, after.uid().to_owned());
    }
}

/// Returns what an object of Cluster API says of Nodes.
fn described(object: &Value) -> ([Option<&Value>; 4], BTreeMap<&String, &Value>) {
    let places = [TEMPLATE, TOPOLOGY, "/status/capacity", "/status/nodeInfo"];
    let annotations = object["metadata"]["annotations"].as_object().into_iter().flatten();
    let describes = |(key, _): &(&String, &Value)| key.starts_with("capacity.") && !key.ends_with("/price-per-hour");
    (places.map(|place| object.pointer(place)), annotations.filter(describes).collect())
}

/// Adds the groups whose infrastructure template has changed.
fn follow_templates(management: &[Value], changed: &mut BTreeSet<GroupKey>) {
    for group in management {
        let template = &group["spec"]["template"]["spec"]["infrastructureRef"];
        let text = |field: &str| template[field].as_str().unwrap_or_default().to_owned();
        if changed.contains(&(text("kind"), namespace_of(group).to_owned(), text("name"))) {
            changed.insert(key_of(group));
        }
    }
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

fn apply(
    objects: &mut Vec<Value>,
    change: &Change,
    changed: &mut BTreeSet<GroupKey>,
    notes: &mut Vec<String>,
) -> anyhow::Result<()> {
    let find = |objects: &[Value], named: &Named, flag: &str| {
        let position = objects.iter().position(|object| named.is(object));
        position.with_context(|| format!("{flag} {}: the manifests have no such object", named.title()))
    };
    match change {
        Change::Add { times, path } => {
            let added = read_one(path, notes).with_context(|| format!("--add {path}"))?;
            add(objects, &added, *times).with_context(|| format!("--add {path}"))?;
        }
        Change::Remove(named) => {
            let at = find(objects, named, "--remove")?;
            let gone = objects[at].uid().to_owned();
            remove(objects, gone);
        }
        Change::Patch(named, patch) => {
            let at = find(objects, named, "--patch")?;
            let before = objects[at].clone();
            let mut new = Vec::new();
            new_fields(&before, patch, "", &mut new);
            notes.extend(new.iter().map(|field| {
                format!("--patch {}: {field}, which the object didn't have; is it spelt right?", named.title())
            }));
            json_patch::merge(&mut objects[at], patch);
            check(&objects[at]).with_context(|| format!("--patch {}", named.title()))?;
            ensure!(
                identity(&before) == identity(&objects[at]),
                "--patch {}: it must not change the name",
                named.title()
            );
            let after = objects[at].clone();
            follow(objects, &before, &after, changed);
        }
    }
    Ok(())
}

/// Collects the fields that a patch sets and that the object didn't have, as in `spec.replicsa`: an API server would
/// warn of one that it doesn't know. Labels, annotations and all within a field that is new itself may have any name.
fn new_fields(known: &Value, patch: &Value, within: &str, new: &mut Vec<String>) {
    let (Value::Object(known), Value::Object(patch)) = (known, patch) else { return };
    for (field, value) in patch.iter().filter(|(field, value)| *field != "metadata" && !value.is_null()) {
        let field_path = format!("{within}{field}");
        match known.get(field) {
            Some(known) => new_fields(known, value, &format!("{field_path}."), new),
            None => new.push(field_path),
        }
    }
}

fn add(objects: &mut Vec<Value>, added: &[Value], times: usize) -> anyhow::Result<()> {
    ensure!(!added.is_empty(), "it has no objects");
    let mut known: BTreeSet<Identity> = objects.iter().map(identity).collect();
    let mut names = 0;
    for (number, object) in (1..=times).flat_map(|number| added.iter().map(move |object| (number, object))) {
        if number > 1 && is_cluster_scoped(object) {
            continue;
        }
        let mut object = copy(object, number, times);
        give_name(&mut object, &mut names, |identity| known.contains(identity));
        ensure!(
            known.insert(identity(&object)),
            "{} is in the manifests already: give it another name",
            title_of(&object)
        );
        if let Some(why) = why_no_pod(&object) {
            bail!("{} makes no Pod: {why}", title_of(&object));
        }
        objects.push(object);
    }
    Ok(())
}

fn is_cluster_scoped(object: &Value) -> bool {
    CLUSTER_SCOPED.contains(&object.kind())
}

/// Returns true if an object is a Pod, or has a controller here that makes some.
fn makes_pods(object: &Value) -> bool {
    matches!(object.group(), "" | "apps" | "batch")
        && (matches!(object.kind(), "Pod" | "Deployment") || REPLICATED.contains(&object.kind()))
}

/// Returns why an object that should make Pods makes none.
fn why_no_pod(object: &Value) -> Option<&'static str> {
    if !makes_pods(object) {
        return (!is_managed(object) && has_pod_template(object))
            .then_some("its controller doesn't run here. Add the Pods or Jobs that it would make");
    }
    let is_zero = |field: &str| object["spec"][field] == 0;
    match object.kind() {
        "Job" if object["spec"]["suspend"] == true => Some("it is suspended. Set spec.suspend to false"),
        "Job" => is_zero("parallelism").then_some("its spec.parallelism is 0"),
        _ => is_zero("replicas").then_some("its spec.replicas is 0"),
    }
}

pub(crate) fn has_pod_template(value: &Value) -> bool {
    match value {
        Value::Object(fields) => fields.iter().any(|(field, value)| {
            field == "template" && value.pointer("/spec/containers").is_some() || has_pod_template(value)
        }),
        Value::Array(items) => items.iter().any(has_pod_template),
        _ => false,
    }
}

/// Returns an object as if somebody had just written it, without what a cluster has made of it.
fn copy(object: &Value, number: usize, of: usize) -> Value {
    let mut copy = object.clone();
    for field in ["uid", "resourceVersion", "managedFields", "creationTimestamp", "deletionTimestamp"] {
        copy.unset(&format!("/metadata/{field}"));
    }
    if makes_pods(object) {
        for place in ["/status", "/spec/nodeName", "/metadata/ownerReferences"] {
            copy.unset(place);
        }
        for place in ["/metadata/labels", "/spec/selector/matchLabels", "/spec/template/metadata/labels"] {
            if let Some(labels) = copy.pointer_mut(place).and_then(Value::as_object_mut) {
                labels.retain(|label, _| !OF_JOB.contains(&label.as_str()));
            }
        }
        if object.controller().is_some_and(|owner| owner["kind"] == "DaemonSet") {
            forget_node(&mut copy["spec"]);
        }
    }
    if of > 1 && !object.name().is_empty() && !is_cluster_scoped(object) {
        copy["metadata"]["name"] = json!(format!("{}-{number}", object.name()));
    }
    if object.namespace().is_empty() && !is_managed(object) && !is_cluster_scoped(object) {
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

/// Shortens the times that annotations give to a group or to Pods, as Cluster Autoscaler's own times are, and notes the
/// longest of each kind.
fn hasten(object: &mut Value, speed: u32, longest: &mut BTreeMap<&'static str, Duration>) {
    for place in ["/metadata/annotations", "/spec/template/metadata/annotations"] {
        let Some(annotations) = object.pointer_mut(place).and_then(Value::as_object_mut) else { continue };
        for (annotation, flag) in TIMES {
            let Some(value) = annotations.get_mut(annotation) else { continue };
            let Some(time) = value.as_str().and_then(|text| text.parse::<GoDuration>().ok()) else { continue };
            let shorter = time.as_nanos() / i64::from(speed);
            *value = json!(GoDuration::from_nanos(shorter).to_string());
            let known = longest.entry(flag).or_default();
            *known = (*known).max(Duration::from_nanos(u64::try_from(shorter).unwrap_or_default()));
        }
    }
}

/// Refuses Nodes without their Machines and Machines without their owners: Cluster API would make them a second time.
fn check_machines(objects: &[Value]) -> anyhow::Result<()> {
    let of_cluster_api = objects.iter().filter(|object| object.group() == CLUSTER_API);
    let known: BTreeSet<_> =
        of_cluster_api.map(|object| (object.kind(), namespace_of(object), object.name())).collect();
    for object in objects.iter().filter(|object| !object.deleting()) {
        if let Some((kind, namespace, name)) = owner_of(object)
            && !known.contains(&(kind, namespace, name))
        {
            bail!(
                "the manifests have {}, but not {}: add the {kind}s of the management cluster (kubectl get {}s -n \
                 {namespace} -o yaml)",
                title_of(object),
                title(kind, namespace, name),
                kind.to_lowercase()
            );
        }
    }
    Ok(())
}

/// Returns the Machine of a Node, or what owns a Machine or a MachineSet.
pub(crate) fn owner_of(object: &Value) -> Option<(&str, &str, &str)> {
    if object.kind() == "Node" {
        let [namespace, machine] = MACHINE_OF.map(|annotation| object.annotation(annotation));
        return Some(("Machine", namespace?, machine?));
    }
    let owner = object.controller().filter(|_| object.group() == CLUSTER_API)?;
    let kind =
        owner["kind"].as_str().filter(|kind| ["MachineSet", "MachineDeployment", "MachinePool"].contains(kind))?;
    Some((kind, namespace_of(object), owner["name"].as_str()?))
}

/// Lets Machines refer to Nodes that have joined since they were dumped, and would join a second time.
fn link_nodes(objects: &mut [Value]) {
    let id_and_name = |node: &Value| Some((node.text("/spec/providerID")?.to_owned(), node.name().to_owned()));
    let nodes: BTreeMap<String, String> =
        objects.iter().filter(|object| object.kind() == "Node").filter_map(id_and_name).collect();
    for machine in objects.iter_mut().filter(|object| object.kind() == "Machine" && object.group() == CLUSTER_API) {
        if let Some(name) = machine.text("/spec/providerID").and_then(|id| nodes.get(id)) {
            machine.set_default("/status/nodeRef/name", json!(name));
        }
    }
}

/// Lets MachineSets refer to templates in the versions of their MachineDeployment: Cluster API rolls nothing out for a
/// version, and the simulated controllers would.
fn align_versions(objects: &mut [Value]) {
    let mut references: BTreeMap<GroupKey, [Value; 2]> = BTreeMap::new();
    for deployment in objects.iter().filter(|object| object.kind() == "MachineDeployment") {
        let of_place = |place: &str| deployment.pointer(place).cloned().unwrap_or_default();
        references.insert(key_of(deployment), REFERENCES.map(of_place));
    }
    for set in objects.iter_mut().filter(|object| object.kind() == "MachineSet") {
        let Some((kind, namespace, name)) = owner_of(set) else { continue };
        let Some(wanted) = references.get(&(kind.to_owned(), namespace.to_owned(), name.to_owned())) else { continue };
        for (place, wanted) in REFERENCES.into_iter().zip(wanted) {
            if let Some(reference) = set.pointer_mut(place)
                && is_said(reference, wanted)
            {
                *reference = wanted.clone();
            }
        }
    }
}

/// Makes the controllers of Pods that the manifests lack: without them Cluster Autoscaler moves no such Pod, and nothing
/// would replace it.
fn stand_in_for_owners(objects: &mut Vec<Value>, not_simulated: &mut Vec<String>) {
    let uids: BTreeSet<&str> = objects.iter().map(Object::uid).collect();
    let mut missing: BTreeMap<(String, String, String), Vec<&Value>> = BTreeMap::new();
    for pod in objects.iter().filter(|object| object.kind() == "Pod") {
        let Some(owner) = pod.controller() else { continue };
        let field = |field: &str| owner[field].as_str().unwrap_or_default();
        if REPLICATED.contains(&field("kind")) && !uids.contains(field("uid")) {
            let key = (field("kind").to_owned(), pod.namespace().to_owned(), field("name").to_owned());
            missing.entry(key).or_default().push(pod);
        }
    }
    let (mut made, mut alone, mut count) = (Vec::new(), Vec::new(), 0);
    for ((kind, namespace, name), pods) in &missing {
        let mut one = stand_in(kind, namespace, name, pods);
        let deployment = objects.iter().find(|object| is_deployment_of(object, pods[0]));
        if let Some(deployment) = deployment.filter(|_| kind == "ReplicaSet") {
            one["metadata"]["ownerReferences"] = json!([controlled_by(deployment)]);
        } else {
            alone.push(title_of(&one));
            count += pods.len();
        }
        made.push(one);
    }
    if !alone.is_empty() {
        not_simulated.push(format!(
            "changes of {} controllers that aren't in the manifests, such as {}: they are kept at the number of their \
             Pods ({count}). Dump daemonsets, deployments, replicasets, statefulsets and jobs, too",
            alone.len(),
            alone.iter().take(3).map(String::as_str).collect::<Vec<_>>().join(", ")
        ));
    }
    objects.extend(made);
}

fn is_deployment_of(object: &Value, pod: &Value) -> bool {
    object.kind() == "Deployment"
        && namespace_of(object) == namespace_of(pod)
        && LabelSelector::of_object(&object["spec"]["selector"]).is_some_and(|selector| selector.matches(pod))
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
    let annotations = first.map("/metadata/annotations");
    let count = pods.len();
    let mut made = json!({
        "apiVersion": owner["apiVersion"],
        "kind": kind,
        "metadata": {"name": name, "namespace": namespace, "uid": owner["uid"], "labels": labels},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels, "annotations": annotations}, "spec": spec},
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
    #[case::typo(r#"{"spec":{"replicsa":2}}"#, &["spec.replicsa"])]
    #[case::whole_field_is_new(r#"{"spec":{"template":{"spec":{"nodeSelector":{"disk":"ssd"}}}}}"#, &["spec.template.spec.nodeSelector"])]
    #[case::known(r#"{"spec":{"replicas":2}}"#, &[])]
    #[case::any_label(r#"{"metadata":{"labels":{"a":"b"}}}"#, &[])]
    #[case::taken_out(r#"{"spec":{"paused":null}}"#, &[])]
    fn a_field_that_a_patch_brings_is_named(#[case] patch: &str, #[case] fields: &[&str]) {
        let change = Change::patch(&format!("deployment/shop/web={patch}")).unwrap();
        let notes = arrange(vec![deployment()], &[change], None, 1).unwrap().not_simulated;
        let of_patch: Vec<_> = notes.iter().filter(|note| note.starts_with("--patch")).collect();
        assert_eq!(of_patch.len(), fields.len(), "{notes:?}");
        for (note, field) in of_patch.iter().zip(fields) {
            assert!(note.contains(&format!(": {field}, ")), "{note}");
        }
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
        let mut pods = ["a", "b"].map(|name| pod(name, ("ReplicaSet", "web-1", "gone")));
        let annotations = json!({"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"});
        pods[0]["metadata"]["annotations"] = annotations.clone();
        let arranged = arrange(pods.into(), &[], None, 1).unwrap();
        let made = &arranged.workload[2];
        assert_eq!((title_of(made).as_str(), made.uid()), ("ReplicaSet shop/web-1", "gone"));
        assert_eq!(made["spec"]["replicas"], 2);
        assert!(made.pointer("/spec/template/spec/nodeName").is_none());
        assert_eq!(made["spec"]["template"]["metadata"]["annotations"], annotations);
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

    /// What a manifest's Pods have more than the dump's, and the number of objects that stay.
    #[rstest]
    #[case::nothing(json!({}), 3)]
    #[case::more(json!({"nodeSelector": {"disk": "ssd"}}), 1)]
    #[case::less(json!({"tolerations": null}), 1)]
    #[case::another_size(json!({"containers": [{"name": "a", "resources": {"requests": {"cpu": 2}}}]}), 1)]
    fn a_manifest_after_the_dump_is_a_change(#[case] more: Value, #[case] stay: usize) {
        let spec = |more: &Value| {
            let mut spec = json!({"tolerations": [{"key": "a"}],
                "containers": [{"name": "a", "resources": {"requests": {"cpu": 1}}}]});
            json_patch::merge(&mut spec, more);
            spec
        };
        let deployment = |metadata: Value, spec: Value| {
            json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata,
                "spec": {"template": {"spec": spec}}})
        };
        let filled = json!({"dnsPolicy": "ClusterFirst",
            "containers": [{"name": "a", "imagePullPolicy": "Always", "resources": {"requests": {"cpu": "1"}}}]});
        let mut dump = vec![
            deployment(json!({"name": "web", "namespace": "default", "uid": "d"}), spec(&filled)),
            replica_set(),
            pod("a", ("ReplicaSet", "web-1", "rs")),
        ];
        dump[0]["spec"]["replicas"] = json!(3);
        for owned in &mut dump[1..] {
            owned["metadata"]["namespace"] = json!("default");
        }
        dump.push(deployment(json!({"name": "web"}), spec(&more)));
        let arranged = arrange(dump, &[], None, 1).unwrap();
        assert_eq!(arranged.workload.len(), stay, "{:?}", names(&arranged.workload));
        assert_eq!(arranged.workload[0]["spec"]["replicas"], 3);
    }

    #[test]
    fn a_dump_after_a_manifest_is_refused() {
        let mut manifest = deployment();
        manifest.unset("/metadata/uid");
        let error = arrange(vec![manifest, deployment()], &[], None, 1).unwrap_err().to_string();
        assert!(error.contains("Deployment shop/web") && error.contains("pass the dump first"), "{error}");
    }

    fn group() -> Value {
        json!({"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "MachineDeployment",
            "metadata": {"name": "batch", "namespace": "default", "uid": "g"},
            "spec": {"clusterName": "prod", "template": {"spec": {
                "infrastructureRef": {"kind": "DevMachineTemplate", "name": "batch"}}}}})
    }

    #[rstest]
    #[case::max(
        r#"{"metadata":{"annotations":{"cluster.x-k8s.io/cluster-api-autoscaler-node-group-max-size":"1"}}}"#,
        false
    )]
    #[case::price(r#"{"metadata":{"annotations":{"capacity.capi-autoscaler-provider.io/price-per-hour":"1"}}}"#, false)]
    #[case::capacity(r#"{"metadata":{"annotations":{"capacity.cluster-autoscaler.kubernetes.io/cpu":"8"}}}"#, true)]
    #[case::labels(r#"{"spec":{"template":{"metadata":{"labels":{"disk":"ssd"}}}}}"#, true)]
    fn new_nodes_differ_if_what_describes_them_has_changed(#[case] patch: &str, #[case] is_changed: bool) {
        let expected: BTreeSet<_> = is_changed.then(|| key_of(&group())).into_iter().collect();
        let change = Change::patch(&format!("md/batch={patch}")).unwrap();
        assert_eq!(arrange(vec![group()], &[change], None, 1).unwrap().changed, expected);
        let mut manifest = group();
        json_patch::merge(&mut manifest, &serde_json::from_str(patch).unwrap());
        manifest.unset("/metadata/uid");
        assert_eq!(arrange(vec![group(), manifest], &[], None, 1).unwrap().changed, expected);
    }

    #[test]
    fn new_nodes_differ_if_the_infrastructure_template_has_changed() {
        let template = json!({"apiVersion": "infrastructure.cluster.x-k8s.io/v1beta2", "kind": "DevMachineTemplate",
            "metadata": {"name": "batch", "namespace": "default"}});
        let change = Change::patch(r#"devmachinetemplates/batch={"status":{"capacity":{"cpu":"8"}}}"#).unwrap();
        let arranged = arrange(vec![group(), template], &[change], None, 1).unwrap();
        assert!(arranged.changed.contains(&key_of(&group())), "{:?}", arranged.changed);
    }

    #[test]
    fn an_added_object_is_as_if_somebody_had_just_written_it() {
        let job = json!({
            "apiVersion": "batch/v1", "kind": "Job",
            "metadata": {"name": "train", "namespace": "shop", "uid": "j", "ownerReferences": [{"uid": "c"}]},
            "spec": {"selector": {"matchLabels": {"batch.kubernetes.io/controller-uid": "j"}},
                "template": {"metadata": {"labels": {"job-name": "train", "app": "x"}}, "spec": {}}},
            "status": {"conditions": [{"type": "Complete", "status": "True"}]},
        });
        let mut objects = Vec::new();
        add(&mut objects, &[job, pod("a", ("Job", "train", "j"))], 2).unwrap();
        assert_eq!(names(&objects), ["Job shop/train-1", "Pod shop/a-1", "Job shop/train-2", "Pod shop/a-2"]);
        for object in &objects {
            for place in ["/status", "/spec/nodeName", "/metadata/ownerReferences", "/metadata/uid"] {
                assert!(object.pointer(place).is_none(), "{place}: {object}");
            }
        }
        assert_eq!(objects[0]["spec"]["selector"]["matchLabels"], json!({}));
        assert_eq!(objects[0]["spec"]["template"]["metadata"]["labels"], json!({"app": "x"}));
    }

    #[test]
    fn generated_names_differ_and_objects_of_the_whole_cluster_are_added_once() {
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"generateName": "a-", "namespace": "n"}});
        let class =
            json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"}});
        let mut objects = latest(vec![pod.clone(), pod.clone()]).unwrap().0;
        assert_eq!(names(&objects), ["Pod n/a-1", "Pod n/a-2"]);
        add(&mut objects, &[class, pod.clone(), pod], 2).unwrap();
        let added = ["PriorityClass high", "Pod n/a-3", "Pod n/a-4", "Pod n/a-5", "Pod n/a-6"];
        assert_eq!(names(&objects)[2..], added);
    }

    #[rstest]
    #[case::suspended("batch/v1", "Job", json!({"suspend": true}), "it is suspended")]
    #[case::no_replicas("apps/v1", "Deployment", json!({"replicas": 0}), "spec.replicas is 0")]
    #[case::cron("batch/v1", "CronJob", json!({"jobTemplate": {"spec": {"template": {"spec": {"containers": []}}}}}),
        "controller doesn't run here")]
    #[case::of_another_group("batch.volcano.sh/v1alpha1", "Job",
        json!({"tasks": [{"template": {"spec": {"containers": []}}}]}), "controller doesn't run here")]
    fn an_added_object_that_makes_no_pod_is_an_error(
        #[case] version: &str,
        #[case] kind: &str,
        #[case] spec: Value,
        #[case] part: &str,
    ) {
        let metadata = json!({"name": "a", "namespace": "n"});
        let object = json!({"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec});
        let error = add(&mut Vec::new(), &[object], 1).unwrap_err().to_string();
        assert!(error.starts_with(&format!("{kind} n/a makes no Pod")) && error.contains(part), "{error}");
    }

    #[test]
    fn a_deployment_owns_the_pods_that_it_selects() {
        let mut deployment = deployment();
        deployment["spec"]["selector"] = json!({"matchLabels": {"app": "web"}});
        let objects = vec![deployment, pod("a", ("ReplicaSet", "web-1", "gone"))];
        let arranged = arrange(objects.clone(), &[], None, 1).unwrap();
        assert_eq!(title_of(&arranged.workload[2]), "ReplicaSet shop/web-1");
        assert_eq!(arranged.workload[2].controller().unwrap()["uid"], "d");
        assert!(
            !arranged.not_simulated.iter().any(|note| note.contains("controllers that")),
            "{:?}",
            arranged.not_simulated
        );
        let removed = arrange(objects, &[Change::remove("deploy/shop/web").unwrap()], None, 1).unwrap();
        assert!(removed.workload.is_empty(), "{:?}", names(&removed.workload));
    }

    #[rstest]
    #[case::machine(
        json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a", "annotations":
            {"cluster.x-k8s.io/cluster-namespace": "team-a", "cluster.x-k8s.io/machine": "m"}}}),
        "the manifests have Node a, but not Machine team-a/m: add the Machines"
    )]
    #[case::machine_set(
        json!({"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine", "metadata": {"name": "m", "namespace": "team-a",
            "ownerReferences": [{"kind": "MachineSet", "name": "s", "uid": "1", "controller": true}]}}),
        "the manifests have Machine team-a/m, but not MachineSet team-a/s: add the MachineSets"
    )]
    fn what_would_be_made_a_second_time_is_an_error(#[case] object: Value, #[case] message: &str) {
        let error = arrange(vec![object], &[], None, 1).unwrap_err().to_string();
        assert!(error.starts_with(message), "{error}");
    }

    #[test]
    fn nodes_and_claims_that_pods_need_are_asked_for() {
        let mut pod = pod("a", ("StatefulSet", "db", "s"));
        pod["spec"]["volumes"] = json!([{"name": "v", "persistentVolumeClaim": {"claimName": "v"}}]);
        let notes = |objects: Vec<Value>| arrange(objects, &[], None, 1).unwrap().not_simulated.join("\n");
        let said = notes(vec![pod.clone()]);
        assert!(said.contains("1 Pods on Nodes that the manifests lack, such as Pod shop/a on node-1"), "{said}");
        assert!(said.contains("1 Pods whose claims the manifests lack, such as Pod shop/a: "), "{said}");
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-1"}});
        let claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "v", "namespace": "shop"}});
        let said = notes(vec![pod, node, claim]);
        assert!(!said.contains("the manifests lack"), "{said}");
    }

    fn machine(name: &str, more: &Value) -> Value {
        let owner = json!({"kind": "MachineSet", "name": "s", "uid": "s", "controller": true});
        let mut machine = json!({"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine",
            "metadata": {"name": name, "namespace": "n", "ownerReferences": [owner]}});
        json_patch::merge(&mut machine, more);
        machine
    }

    #[test]
    fn a_machine_whose_node_has_joined_since_its_dump_refers_to_it() {
        let set = json!({"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "MachineSet",
            "metadata": {"name": "s", "namespace": "n", "uid": "s"}});
        let joins =
            machine("joins", &json!({"spec": {"providerID": "aws:///a/i-1"}, "status": {"phase": "Provisioned"}}));
        let fails = machine("fails", &json!({"status": {"phase": "Failed"}}));
        let goes = machine("goes", &json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}));
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "ip-10-0-0-1"},
            "spec": {"providerID": "aws:///a/i-1"}});
        let arranged = arrange(vec![set, joins, fails, goes, node], &[], None, 1).unwrap();
        assert_eq!(arranged.management[1]["status"]["nodeRef"]["name"], "ip-10-0-0-1");
        assert!(arranged.management[2].pointer("/status/nodeRef").is_none());
        let said = arranged.not_simulated.join("\n");
        assert!(said.contains("1 Machines without a Node, such as Machine n/fails: "), "{said}");
        assert!(said.contains("1 Machines in deletion, such as Machine n/goes: "), "{said}");
    }

    #[test]
    fn pods_that_are_pending_on_a_node_are_named() {
        let mut pod = pod("a", ("ReplicaSet", "web-1", "rs"));
        pod["status"]["phase"] = json!("Pending");
        let notes = arrange(vec![pod], &[], None, 1).unwrap().not_simulated;
        let part = "1 Pods that are Pending on their Node, such as Pod shop/a: ";
        assert!(notes.iter().any(|note| note.starts_with(part)), "{notes:?}");
    }

    #[rstest]
    #[case::worker(json!({}), 1)]
    #[case::control_plane(json!({"node-role.kubernetes.io/control-plane": ""}), 0)]
    fn static_pods_of_workers_are_named(#[case] labels: Value, #[case] count: usize) {
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-1", "labels": labels}});
        let pod = pod("proxy-node-1", ("Node", "node-1", "n"));
        let notes = arrange(vec![node, pod], &[], None, 1).unwrap().not_simulated;
        assert_eq!(notes.iter().filter(|note| note.starts_with("1 static Pods")).count(), count, "{notes:?}");
    }

    #[rstest]
    #[case::another_version("infrastructure.cluster.x-k8s.io/v1beta1", "batch", true)]
    #[case::another_template("infrastructure.cluster.x-k8s.io/v1beta2", "batch-2", false)]
    fn a_version_of_a_template_is_no_rollout(#[case] version: &str, #[case] name: &str, #[case] is_same: bool) {
        let owner = json!({"kind": "MachineDeployment", "name": "batch", "uid": "g", "controller": true});
        let object = |kind: &str, uid: &str, owners: &[&Value], reference: (&str, &str)| {
            json!({"apiVersion": "cluster.x-k8s.io/v1beta1", "kind": kind,
                "metadata": {"name": "batch", "namespace": "default", "uid": uid, "ownerReferences": owners},
                "spec": {"template": {"spec": {"infrastructureRef":
                    {"apiVersion": reference.0, "kind": "DevMachineTemplate", "name": reference.1}}}}})
        };
        let newest = ("infrastructure.cluster.x-k8s.io/v1beta2", "batch");
        let objects =
            [object("MachineDeployment", "g", &[], newest), object("MachineSet", "s", &[&owner], (version, name))];
        let arranged = arrange(objects.into(), &[], None, 1).unwrap().management;
        assert_eq!(arranged[0].pointer(TEMPLATE) == arranged[1].pointer(TEMPLATE), is_same, "{arranged:?}");
    }

    #[rstest]
    #[case::node(json!({"apiVersion": "v1", "kind": "Node"}), Some("1 Nodes that aren't Ready, such as Node a: "))]
    #[case::ready(
        json!({"apiVersion": "v1", "kind": "Node", "status": {"conditions": [{"type": "Ready", "status": "True"}]}}),
        None
    )]
    #[case::pool(
        json!({"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "MachinePool"}), Some("1 MachinePools, such as ")
    )]
    #[case::waits(json!({"apiVersion": "v1", "kind": "Pod", "status": {"phase": "Pending"}}), None)]
    #[case::resized(
        json!({"apiVersion": "v1", "kind": "Pod", "status": {"conditions": [{"type": "PodResizePending"}]}}),
        Some("1 Pods that are being resized, such as Pod a: ")
    )]
    #[case::class(
        json!({"apiVersion": "v1", "kind": "Pod", "spec": {"priorityClassName": "high"}}),
        Some("1 objects whose PriorityClass the manifests lack, such as Pod a: ")
    )]
    #[case::class_of_every_cluster(
        json!({"apiVersion": "v1", "kind": "Pod", "spec": {"priorityClassName": "system-node-critical"}}), None
    )]
    #[case::class_that_is_known(
        json!({"apiVersion": "v1", "kind": "Pod", "spec": {"priorityClassName": "high", "priority": 7}}), None
    )]
    #[case::custom(
        json!({"apiVersion": "argoproj.io/v1alpha1", "kind": "Rollout",
            "spec": {"template": {"spec": {"containers": []}}}}),
        Some("1 × Rollout: its controller doesn't run here")
    )]
    #[case::of_kubernetes(
        json!({"apiVersion": "apps/v1", "kind": "ControllerRevision",
            "data": {"spec": {"template": {"spec": {"containers": []}}}}}),
        None
    )]
    fn what_is_left_as_it_is_is_named(#[case] object: Value, #[case] part: Option<&str>) {
        let mut object = object;
        object["metadata"] = json!({"name": "a"});
        let said = arrange(vec![object], &[], None, 1).unwrap().not_simulated.join("\n");
        assert!(part.map_or(said.is_empty(), |part| said.starts_with(part)), "{said}");
    }

    #[test]
    fn what_cluster_autoscaler_said_before_and_permissions_are_dropped() {
        let status = json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "s", "namespace": "n", "annotations": {UPDATED: "2026"}}});
        let priorities = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "p", "namespace": "n"}});
        let event = json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": "e", "namespace": "n"}});
        let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
            "metadata": {"name": "system:node"}});
        let arranged = arrange(vec![status, priorities, event, role], &[], None, 1).unwrap();
        assert_eq!(names(&arranged.workload), ["ConfigMap n/p"]);
    }

    #[test]
    fn a_topology_is_noted_if_its_groups_are_missing() {
        let cluster = json!({"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster",
            "metadata": {"name": "prod", "namespace": "default", "uid": "c"},
            "spec": {"topology": {"workers": {"machineDeployments": [{"name": "a"}, {"name": "b"}]}}}});
        let mut made = group();
        made["metadata"]["labels"] = json!({"topology.cluster.x-k8s.io/deployment-name": "a"});
        let notes = |objects: Vec<Value>| arrange(objects, &[], None, 1).unwrap().not_simulated.join("\n");
        let said = notes(vec![cluster.clone(), made.clone()]);
        assert!(said.contains("the topology of Cluster default/prod") && said.contains("workers b has"), "{said}");
        let mut other = made.clone();
        other["metadata"] = json!({"name": "other", "namespace": "default",
            "labels": {"topology.cluster.x-k8s.io/deployment-name": "b"}});
        assert_eq!(notes(vec![cluster.clone(), made.clone(), other.clone()]), "");
        let mut manifest = cluster.clone();
        manifest.unset("/metadata/uid");
        manifest["spec"]["topology"]["version"] = json!("v1.36.0");
        let said = notes(vec![cluster, made, other, manifest]);
        assert!(said.contains("the change of the topology of Cluster default/prod"), "{said}");
    }

    #[test]
    fn a_folder_may_have_other_files_which_are_noted() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
        write("kustomization.yaml", "resources: [a.yaml]\n");
        write("values.yaml", "replicas: 1\n");
        write("a.yaml", "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\n");
        let mut notes = Vec::new();
        let objects = read(&[folder.path().display().to_string()], &mut notes).unwrap();
        assert_eq!(names(&objects), ["Pod a"]);
        assert!(notes[0].starts_with("1 Kustomizations in") && notes[0].contains("kustomize build"), "{notes:?}");
        assert!(notes[1].starts_with("1 documents in") && notes.len() == 2, "{notes:?}");
    }

    #[rstest]
    #[case("priorityclasses/high", "PriorityClass", true)]
    #[case("pc/high", "PriorityClass", true)]
    #[case("pdb/high", "PodDisruptionBudget", true)]
    #[case("rc/default/high", "ReplicationController", true)]
    #[case("node/high", "NodeClass", false)]
    fn kinds_have_plurals_and_short_names(#[case] text: &str, #[case] kind: &str, #[case] is: bool) {
        assert_eq!(named(text).unwrap().is(&json!({"kind": kind, "metadata": {"name": "high"}})), is);
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
        let mut deployment = json!({"spec": {"template": {"metadata": {"annotations": {
            "cluster-autoscaler.kubernetes.io/pod-scale-up-delay": "1h",
        }}}}});
        let mut longest = BTreeMap::new();
        hasten(&mut group, 60, &mut longest);
        hasten(&mut deployment, 60, &mut longest);
        assert_eq!(
            group["metadata"]["annotations"]["cluster.x-k8s.io/autoscaling-options-scaledownunneededtime"],
            "20s"
        );
        let annotations = &deployment["spec"]["template"]["metadata"]["annotations"];
        assert_eq!(annotations["cluster-autoscaler.kubernetes.io/pod-scale-up-delay"], "1m");
        let expected = [
            ("new-pod-scale-up-delay", Duration::from_secs(60)),
            ("scale-down-unneeded-time", Duration::from_secs(20)),
        ];
        assert_eq!(longest, BTreeMap::from(expected));
    }

    #[test]
    fn secrets_are_refused() {
        let error = check(&json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a", "namespace": "n"}}));
        assert!(error.unwrap_err().to_string().starts_with("Secret n/a is refused"));
    }
}
