//! The Node that would join if a group grew: capacity, labels and taints, each value with where it comes from.
//! Cluster Autoscaler simulates on it, so what a real Node of the group says about itself wins.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    fmt,
    str::FromStr,
};

use k8s_pb::{
    api::core::v1 as wire,
    apimachinery::pkg::{api::resource::Quantity as WireQuantity, apis::meta::v1::ObjectMeta},
};
use prost::{Message, bytes::Bytes};
use regex::Regex;
use thiserror::Error;

use super::{
    Problem, ProblemKind, Quantity, Taint,
    capacity::{self, CPU, Capacity, MEMORY},
    labels::{self, LABELS},
    taints::{self, TAINTS},
};
use crate::capi::{CAPACITY_PREFIX, InfrastructureTemplate, Node, ScalableKind, ScalableResource};

const HOSTNAME: &str = "kubernetes.io/hostname";
const ARCH: &str = "kubernetes.io/arch";
const OS: &str = "kubernetes.io/os";
const DEFAULT_OS: &str = "linux";

/// What the operator says about all templates.
#[derive(Clone, Debug, Default)]
pub struct TemplateRules {
    /// The architecture when nothing else says it (`CAPI_SCALE_ZERO_DEFAULT_ARCH`).
    pub default_arch: Architecture,
    /// Cluster API's `--additional-sync-machine-labels`: expressions over label keys, not anchored.
    pub additional_sync_labels: Vec<Regex>,
}

/// The architectures that can be the default.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Architecture {
    /// x86, 64 bits.
    #[default]
    Amd64,
    /// ARM, 64 bits.
    Arm64,
    /// POWER, little-endian.
    Ppc64le,
    /// IBM Z.
    S390x,
}

/// The text is no architecture known here.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
#[error("architecture {0:?} isn't known: it must be amd64, arm64, ppc64le or s390x")]
pub struct UnknownArchitecture(String);

impl Architecture {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Amd64, Self::Arm64, Self::Ppc64le, Self::S390x];

    /// As the label `kubernetes.io/arch` spells it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Amd64 => "amd64",
            Self::Arm64 => "arm64",
            Self::Ppc64le => "ppc64le",
            Self::S390x => "s390x",
        }
    }
}

impl fmt::Display for Architecture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Architecture {
    type Err = UnknownArchitecture;

    fn from_str(text: &str) -> Result<Self, UnknownArchitecture> {
        Self::ALL
            .into_iter()
            .find(|architecture| architecture.as_str() == text)
            .ok_or_else(|| UnknownArchitecture(text.to_owned()))
    }
}

/// A value and where it comes from.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Sourced<T> {
    /// The value.
    pub value: T,
    /// Where it comes from.
    pub source: Source,
}

impl<T> Sourced<T> {
    /// A value from a source.
    pub fn new(value: T, source: Source) -> Self {
        Self { value, source }
    }
}

/// Where a value of a template comes from.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Source {
    /// Nothing says it.
    Default,
    /// The infrastructure template's `status.capacity`.
    StatusCapacity,
    /// The infrastructure template's `status.nodeInfo`.
    NodeInfo,
    /// A capacity annotation of the group.
    Annotation,
    /// The group's `spec.template.metadata`.
    TemplateMetadata,
    /// The group's `spec.template.spec`.
    TemplateSpec,
    /// A Node of the group.
    RealNode,
}

impl Source {
    /// For people and as a field of outputs.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::StatusCapacity => "status.capacity",
            Self::NodeInfo => "status.nodeInfo",
            Self::Annotation => "annotation",
            Self::TemplateMetadata => "spec.template.metadata",
            Self::TemplateSpec => "spec.template.spec",
            Self::RealNode => "real node",
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The Node that would join.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeTemplate {
    /// Resources; cpu, memory and pods are always there.
    pub capacity: Capacity,
    /// Labels; arch and os are always there. The hostname is added when a name is given.
    pub labels: BTreeMap<String, Sourced<String>>,
    /// Taints, no two with the same key and effect.
    pub taints: Vec<Sourced<Taint>>,
}

/// The template of a group, or `None` when its cpu or memory isn't known, and everything that is wrong with what was
/// read. `sample_node` is any Node of the group.
#[must_use]
pub fn build(
    group: &ScalableResource,
    infrastructure: Option<&InfrastructureTemplate>,
    sample_node: Option<&Node>,
    rules: &TemplateRules,
) -> (Option<NodeTemplate>, Vec<Problem>) {
    let (capacity, mut problems) = capacity::capacity(&group.annotations, infrastructure);
    let (labels, of_labels) = labels_of(group, infrastructure, sample_node, rules);
    problems.extend(of_labels);
    let (taints, of_taints) = taints_of(group);
    problems.extend(of_taints);
    let known = capacity.contains_key(CPU) && capacity.contains_key(MEMORY);
    (known.then_some(NodeTemplate { capacity, labels, taints }), problems)
}

/// From weakest to strongest: defaults, nodeInfo where it says something, synced template labels, annotation, a real
/// Node. Cluster API syncs no labels to a MachinePool's Nodes.
fn labels_of(
    group: &ScalableResource,
    infrastructure: Option<&InfrastructureTemplate>,
    sample_node: Option<&Node>,
    rules: &TemplateRules,
) -> (BTreeMap<String, Sourced<String>>, Vec<Problem>) {
    let mut labels = BTreeMap::new();
    let mut problems = Vec::new();
    let mut put = |key: &str, value: &str, source| {
        labels.insert(key.to_owned(), Sourced::new(value.to_owned(), source));
    };
    put(ARCH, rules.default_arch.as_str(), Source::Default);
    put(OS, DEFAULT_OS, Source::Default);
    if let Some(infrastructure) = infrastructure {
        let said = [
            (ARCH, "architecture", &infrastructure.architecture),
            (OS, "operatingSystem", &infrastructure.operating_system),
        ];
        for (key, field, value) in said {
            let Some(value) = value else { continue };
            match labels::check_value(value) {
                Ok(()) => put(key, value, Source::NodeInfo),
                Err(rule) => problems.push(Problem::new(
                    ProblemKind::Template,
                    format!(
                        "status.nodeInfo.{field} of infrastructure template {} is {:?}: {rule}; it is ignored",
                        infrastructure.meta.key,
                        super::problem::Clipped(value),
                    ),
                )),
            }
        }
    }
    if group.kind != ScalableKind::MachinePool {
        let (synced, more) = labels::synced(&group.template_labels, &rules.additional_sync_labels);
        problems.extend(more);
        for (key, value) in &synced {
            put(key, value, Source::TemplateMetadata);
        }
    }
    if let Some((annotation, text)) = annotation(group, LABELS) {
        let (annotated, more) = labels::parse(&annotation, text);
        problems.extend(more);
        for (key, value) in &annotated {
            put(key, value, Source::Annotation);
        }
    }
    for (key, value) in sample_node.into_iter().flat_map(|node| node.template_labels.iter()) {
        if !value.is_empty() {
            put(key, value, Source::RealNode);
        }
    }
    (labels, problems)
}

/// The template's taints, each replaced by an annotation's of the same key and effect, and the annotation's others.
/// Cluster API syncs no taints to a MachinePool's Nodes.
fn taints_of(group: &ScalableResource) -> (Vec<Sourced<Taint>>, Vec<Problem>) {
    let (of_template, mut problems) = match group.kind {
        ScalableKind::MachineDeployment | ScalableKind::MachineSet => taints::of_template(&group.taints),
        ScalableKind::MachinePool => (Vec::new(), Vec::new()),
    };
    let mut taints: Vec<_> = of_template.into_iter().map(|taint| Sourced::new(taint, Source::TemplateSpec)).collect();
    if let Some((annotation, text)) = annotation(group, TAINTS) {
        let (annotated, more) = taints::parse(&annotation, text);
        problems.extend(more);
        for taint in annotated {
            let taint = Sourced::new(taint, Source::Annotation);
            match taints.iter_mut().find(|other| taint.value.replaces(&other.value)) {
                Some(other) => *other = taint,
                None => taints.push(taint),
            }
        }
    }
    (taints, problems)
}

fn annotation<'a>(group: &'a ScalableResource, name: &str) -> Option<(String, &'a str)> {
    let key = format!("{CAPACITY_PREFIX}{name}");
    let text = group.annotations.get(key.as_str())?;
    Some((key, text))
}

impl NodeTemplate {
    /// A core/v1 Node of that name in protobuf, without an envelope: labels with the hostname, taints, capacity, the same
    /// as allocatable, and the conditions of a Node that is well. Equal templates of equal names are equal bytes.
    #[must_use]
    pub fn encode(&self, name: &str) -> Bytes {
        let mut labels: BTreeMap<_, _> =
            self.labels.iter().map(|(key, value)| (key.clone(), value.value.clone())).collect();
        if let Entry::Vacant(entry) = labels.entry(HOSTNAME.to_owned()) {
            entry.insert(name.to_owned());
        }
        let capacity: BTreeMap<_, _> = self
            .capacity
            .iter()
            .map(|(resource, quantity)| (resource.clone(), wire_quantity(quantity.value)))
            .collect();
        let node = wire::Node {
            metadata: Some(ObjectMeta { name: Some(name.to_owned()), labels, ..ObjectMeta::default() }),
            spec: Some(wire::NodeSpec {
                taints: self.taints.iter().map(|taint| wire_taint(&taint.value)).collect(),
                ..wire::NodeSpec::default()
            }),
            status: Some(wire::NodeStatus {
                allocatable: capacity.clone(),
                capacity,
                conditions: CONDITIONS.iter().map(|(kind, status)| wire_condition(kind, status)).collect(),
                ..wire::NodeStatus::default()
            }),
        };
        node.encode_to_vec().into()
    }
}

/// The conditions of a Node that is well.
const CONDITIONS: [(&str, &str); 5] = [
    ("Ready", "True"),
    ("MemoryPressure", "False"),
    ("DiskPressure", "False"),
    ("PIDPressure", "False"),
    ("NetworkUnavailable", "False"),
];

fn wire_quantity(quantity: Quantity) -> WireQuantity {
    WireQuantity { string: Some(quantity.to_string()) }
}

fn wire_taint(taint: &Taint) -> wire::Taint {
    wire::Taint {
        key: Some(taint.key.clone()),
        value: Some(taint.value.clone()),
        effect: Some(taint.effect.as_str().to_owned()),
        time_added: None,
    }
}

fn wire_condition(kind: &str, status: &str) -> wire::NodeCondition {
    wire::NodeCondition {
        r#type: Some(kind.to_owned()),
        status: Some(status.to_owned()),
        ..wire::NodeCondition::default()
    }
}

#[cfg(test)]
mod tests;
