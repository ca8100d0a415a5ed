//! The MachineDeployments and MachinePools that Cluster API makes of a Cluster's topology and its ClusterClass. A
//! repository has only these two, and their annotations become those of node groups. An object that is among the
//! manifests itself must never be made a second time.

use std::collections::{BTreeMap, BTreeSet};

use rules::capi::{Keys, Meta, ObjectKey, ScalableKind, TOPOLOGY_NAME, TOPOLOGY_POOL_NAME};
use rules::topology::size_without_replicas;
use serde_json::{Value, json};

use super::objects::{Identity, Manifests, Object};

/// An object that Cluster API makes.
pub(super) struct Made {
    pub(super) kind: ScalableKind,
    pub(super) identity: Identity,
    pub(super) object: Object,
    /// Notes for people.
    pub(super) notes: Vec<String>,
}

/// A kind of workers in a topology or class.
struct Workers {
    kind: ScalableKind,
    /// The field that lists them.
    list: &'static str,
    /// The label of the object that is made: the worker's name in the topology.
    label: &'static str,
}

const WORKERS: [Workers; 2] = [
    Workers { kind: ScalableKind::MachineDeployment, list: "machineDeployments", label: TOPOLOGY_NAME },
    Workers { kind: ScalableKind::MachinePool, list: "machinePools", label: TOPOLOGY_POOL_NAME },
];

/// Returns the objects that Cluster API makes of all topologies, and one for each worker of a ClusterClass that is of no
/// topology here.
pub(super) fn made(manifests: &Manifests, keys: &Keys) -> Vec<Made> {
    let of_kind = |kind: &'static str| {
        let is_of = move |identity: &Identity| identity.group == keys.group && identity.kind == kind;
        manifests.objects.iter().filter(move |(identity, _)| is_of(identity))
    };
    let mut made = Vec::new();
    let mut used = BTreeSet::new();
    for (identity, cluster) in of_kind("Cluster") {
        let Some(topology) = cluster.value.pointer("/spec/topology") else { continue };
        let class = class_of(topology, &identity.key);
        let is_class = |(of_class, _): &(&Identity, &Object)| Some(&of_class.key) == class.as_ref();
        let class = of_kind("ClusterClass").find(is_class);
        for workers in &WORKERS {
            for worker in listed(topology, workers) {
                let Some(name) = text(worker, "/name") else { continue };
                let class_name = text(worker, "/class").unwrap_or_default();
                let of_class = class.and_then(|(identity, class)| {
                    used.insert((identity, workers.list, class_name));
                    let mut all = listed(class.value.get("spec")?, workers);
                    all.find(|of_class| text(of_class, "/class") == Some(class_name))
                });
                if is_there(manifests, identity, workers, name) {
                    continue;
                }
                let mut notes = vec![format!(
                    "Cluster API makes it of the topology of Cluster {}, and adds random characters to its name",
                    identity.key
                )];
                if of_class.is_none() {
                    notes.push(format!(
                        "class {class_name:?} of its ClusterClass isn't among the manifests: its annotations and its \
                         infrastructure template aren't known"
                    ));
                }
                let source = Source { made_of: identity, object: cluster, cluster: &identity.key.name, name };
                made.push(source.make(keys, workers, [Some(worker), of_class], notes));
            }
        }
    }
    for (identity, class) in of_kind("ClusterClass") {
        for workers in &WORKERS {
            for of_class in class.value.get("spec").into_iter().flat_map(|spec| listed(spec, workers)) {
                let Some(name) = text(of_class, "/class") else { continue };
                if used.contains(&(identity, workers.list, name)) {
                    continue;
                }
                let notes = vec![format!("Cluster API makes one of ClusterClass {} for each topology", identity.key)];
                let source = Source { made_of: identity, object: class, cluster: "", name };
                made.push(source.make(keys, workers, [None, Some(of_class)], notes));
            }
        }
    }
    made
}

/// The Cluster or ClusterClass that a worker is of.
struct Source<'a> {
    made_of: &'a Identity,
    object: &'a Object,
    cluster: &'a str,
    /// The worker's name in it.
    name: &'a str,
}

impl Source<'_> {
    /// Returns the object of a worker, whose own metadata win over those of its class.
    fn make(&self, keys: &Keys, workers: &Workers, from: [Option<&Value>; 2], notes: Vec<String>) -> Made {
        let Self { made_of, object, cluster, name } = self;
        let [worker, of_class] = from;
        let merged = |field: &str| {
            let mut merged = BTreeMap::new();
            // The class of v1beta1 has its metadata in a template.
            let of_template = of_class.and_then(|class| class.pointer("/template/metadata"));
            let metadata = [of_template].into_iter().chain([of_class, worker].map(|from| from?.get("metadata")));
            for texts in metadata.flatten().filter_map(|metadata| metadata.get(field)?.as_object()) {
                merged.extend(texts.iter().map(|(key, value)| (key.clone(), value.clone())));
            }
            merged
        };
        let annotations = merged("annotations");
        let mut labels = merged("labels");
        labels.insert(keys.cluster_name.clone(), (*cluster).into());
        labels.insert(workers.label.to_owned(), (*name).into());
        let annotation = |key: &str| annotations.get(key).and_then(Value::as_str);
        let replicas = worker.and_then(|worker| worker.get("replicas")).filter(|replicas| !replicas.is_null());
        let replicas = replicas.cloned().or_else(|| size_without_replicas(keys, annotation, None).map(Value::from));
        let either = |field: &str| [worker, of_class].into_iter().flatten().find_map(|from| from.get(field));
        let reference = of_class.and_then(|class| {
            class.pointer("/infrastructure/templateRef").or_else(|| class.pointer("/template/infrastructure/ref"))
        });
        // A pool's template is copied to an object of another kind, which has no capacity.
        let reference = reference.filter(|_| workers.kind == ScalableKind::MachineDeployment);
        let key = ObjectKey::new(made_of.key.namespace.clone(), format!("{}-{name}", made_of.key.name));
        let value = json!({
            "metadata": {"annotations": annotations, "labels": labels},
            "spec": {
                "clusterName": cluster,
                "replicas": replicas,
                "failureDomains": either("failureDomains"),
                "template": {
                    "metadata": {"labels": labels},
                    "spec": {
                        "infrastructureRef": reference,
                        "failureDomain": either("failureDomain"),
                        "taints": either("taints"),
                    },
                },
            },
        });
        let meta = Meta { key: key.clone(), ..object.meta.clone() };
        Made {
            kind: workers.kind,
            identity: Identity { group: made_of.group.clone(), kind: workers.kind.to_string(), key },
            object: Object { place: object.place.clone(), meta, value },
            notes,
        }
    }
}

/// Returns the name of a topology's ClusterClass, which is in the Cluster's namespace unless the topology says another.
fn class_of(topology: &Value, cluster: &ObjectKey) -> Option<ObjectKey> {
    let name = text(topology, "/classRef/name").or_else(|| text(topology, "/class"))?;
    let namespace = text(topology, "/classRef/namespace").or_else(|| text(topology, "/classNamespace"));
    Some(ObjectKey::new(namespace.unwrap_or(&cluster.namespace), name))
}

fn listed<'a>(of: &'a Value, workers: &Workers) -> impl Iterator<Item = &'a Value> + use<'a> {
    of.get("workers").and_then(|all| all.get(workers.list)?.as_array()).into_iter().flatten()
}

/// Returns true if the manifests have the object that Cluster API has made, as a dump of a cluster does.
fn is_there(manifests: &Manifests, cluster: &Identity, workers: &Workers, name: &str) -> bool {
    manifests.objects.iter().any(|(identity, object)| {
        identity.kind == workers.kind.as_str()
            && identity.group == cluster.group
            && identity.key.namespace == cluster.key.namespace
            && text(&object.value, "/spec/clusterName") == Some(&*cluster.key.name)
            && object.value.pointer("/metadata/labels").and_then(|labels| labels.get(workers.label)?.as_str())
                == Some(name)
    })
}

fn text<'a>(value: &'a Value, pointer: &str) -> Option<&'a str> {
    value.pointer(pointer).and_then(Value::as_str).filter(|text| !text.is_empty())
}
