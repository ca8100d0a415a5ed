//! Builds the Node that would join if a group grew: capacity, overhead, labels and taints, each value with its source.
//! Cluster Autoscaler simulates with it, so it must match the Node that would really join.

mod metadata;

use std::collections::{BTreeMap, btree_map::Entry};

use k8s_pb::{
    api::core::v1 as wire,
    apimachinery::pkg::{api::resource::Quantity as WireQuantity, apis::meta::v1::ObjectMeta},
};
use prost::{Message, bytes::Bytes};
use regex::Regex;
use serde::{Serialize, Serializer, ser::SerializeStruct as _};

use crate::{
    Architecture, GroupId, Problem, Quantity, Source, Sourced, SourcedMap, Taint, TemplateName, capacity,
    capi::{InfrastructureTemplate, ScalableResource},
    drivers::{self, Driver},
    labels::ARCH,
    named_enum,
    observed::RealNodes,
    remembered::{self, Minor},
    resource_list::{CPU, Capacity, MEMORY, ResourceList},
};

pub(super) const HOSTNAME: &str = "kubernetes.io/hostname";
const OS: &str = "kubernetes.io/os";
const REGION: &str = "topology.kubernetes.io/region";

/// The maximum number of notes on drivers that are reported.
const MOST_NOTES: usize = 10;

/// The result of [`build`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Built {
    /// The Node that would join; `None` if its cpu or memory isn't stated.
    pub template: Option<NodeTemplate>,
    /// What would state cpu and memory while the group has no Nodes; `None` if nothing would.
    pub from_zero: Option<FromZero>,
    /// Its drivers, which the template can't carry.
    pub drivers: Vec<Driver>,
    /// The problems of all inputs.
    pub problems: Vec<Problem>,
    /// The notes, which aren't problems.
    pub notes: Vec<String>,
}

/// Builds the template of a group. `nodes` has the observations of its Nodes.
///
/// Cpu and memory must be stated by an annotation or `status.capacity`, or remembered; observed Nodes only refine them. A
/// group that could scale from zero only because of an observed Node would disappear after a restart.
pub fn build(
    group: &ScalableResource,
    infrastructure: Option<&InfrastructureTemplate>,
    nodes: RealNodes<'_>,
    rules: &TemplateRules,
) -> Built {
    let context = Context { group, id: GroupId::of(group.kind, &group.meta), nodes, rules };
    let mut built = Built::default();
    let infrastructure = infrastructure.map(|template| (template, template_name(group, template)));
    let infrastructure = infrastructure.as_ref().map(|(template, name)| (*template, name));
    let mut capacity = capacity::capacity(&context, infrastructure, &mut built.problems, &mut built.notes);
    let (drivers, of_drivers) = drivers::drivers(&group.annotations);
    built.problems.extend(of_drivers);
    built.drivers = drivers;
    if let Some(remembered) = &context.nodes.remembered {
        let of_nodes = drivers::remembered(&remembered.entry.offers, &built.drivers, &remembered.source());
        built.drivers.extend(of_nodes);
    }
    let labels = metadata::labels(&context, infrastructure, &mut built);
    let taints = metadata::taints(group, &mut built);
    if let Some(arch) = labels.get(ARCH) {
        capacity::put_empty_huge_pages(&mut capacity, &arch.value, &context);
    }
    built.from_zero = from_zero(&capacity, nodes.remembered.is_some());
    let overhead = capacity::overhead(&context, &capacity, &mut built.problems);
    if let Some(version) = other_version(group, &context.nodes) {
        built.notes.push(version);
    }
    if let Err(problem) = remembered::is_wanted(group) {
        built.problems.push(problem);
    }
    if built.from_zero.is_some() {
        let declared_features = declared_features(&context);
        let template = NodeTemplate { capacity, overhead, labels, taints, declared_features };
        capacity::check_gpu_label(&template, &mut built.problems, &mut built.notes);
        built.template = Some(template);
    }
    let stated = built.drivers.iter().filter(|driver| matches!(driver.source, Source::Annotation(_)));
    built.notes.extend(stated.map(Driver::note).take(MOST_NOTES));
    built
}

named_enum! {
    /// What states cpu and memory of a group without Nodes, as a word of metrics and JSON.
    #[derive(Clone, Copy, Debug, Eq, PartialEq)]
    pub enum FromZero {
        /// Annotations, both.
        Annotations = "annotation",
        /// Nodes that are remembered.
        Remembered = "remembered",
        /// `status.capacity`, at least one of them.
        StatusCapacity = "status.capacity",
    }
}

fn from_zero(capacity: &Capacity, is_remembered: bool) -> Option<FromZero> {
    let have = |counts: fn(&Source) -> bool| {
        [CPU, MEMORY].iter().all(|resource| capacity.get(*resource).is_some_and(|it| it.sources().any(counts)))
    };
    if have(|source| matches!(source, Source::Annotation(_))) {
        Some(FromZero::Annotations)
    } else if is_remembered {
        Some(FromZero::Remembered)
    } else if have(|source| !matches!(source, Source::Learned(_) | Source::Default)) {
        Some(FromZero::StatusCapacity)
    } else {
        None
    }
}

/// Returns the features that the kubelets of Nodes of the same templates declare. Cluster Autoscaler takes a pod that needs
/// one for unschedulable on a Node without it, from 1.36 on.
fn declared_features(context: &Context<'_>) -> Vec<Sourced<String>> {
    let nodes = &context.nodes;
    let (features, source) = match (nodes.same_templates, &nodes.remembered) {
        (Some(seen), _) => (&seen.declared_features, seen.source_for(&context.id)),
        (None, Some(remembered)) => (&remembered.entry.declared_features, remembered.source()),
        (None, None) => return Vec::new(),
    };
    features.iter().map(|feature| Sourced::new(feature.clone(), source.clone())).collect()
}

/// Returns a note if what is remembered is used, and is of another minor version of Kubernetes than the next Node's.
fn other_version(group: &ScalableResource, nodes: &RealNodes<'_>) -> Option<String> {
    let entry = nodes.remembered.as_ref().filter(|_| nodes.same_templates.is_none())?.entry;
    let (seen, next) = (entry.version?, Minor::parse(group.version.as_deref()?)?);
    (seen != next).then(|| {
        format!("what is remembered is from Kubernetes {seen} ({}), and the next Node will have {next}", entry.seen)
    })
}

/// Returns the architecture that the annotation `labels` or `status.nodeInfo` states for a group's Nodes.
pub fn stated_arch(group: &ScalableResource, infrastructure: Option<&InfrastructureTemplate>) -> Option<String> {
    metadata::annotated_arch(group).or_else(|| Some(infrastructure?.architecture.as_ref()?.to_string()))
}

/// Returns the name by which the group refers to the template.
fn template_name(group: &ScalableResource, template: &InfrastructureTemplate) -> TemplateName {
    group.infrastructure.as_ref().map_or_else(
        || TemplateName { kind: "infrastructure template".into(), name: template.meta.key.name.clone() },
        TemplateName::from,
    )
}

// The Node that would join if a group grew, each value with its source.

/// The Node that would join.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeTemplate {
    /// The resources; cpu, memory and pods are always present.
    pub capacity: Capacity,
    /// The amounts that pods don't get, for resources of the capacity. Pods get all of a resource without an entry. An
    /// amount may exceed the capacity: see [`allocatable`](Self::allocatable).
    pub overhead: SourcedMap<Quantity>,
    /// The labels; arch and os are always present. [`encode`](Self::encode) adds the hostname.
    pub labels: SourcedMap<String>,
    /// The taints, no two with the same key and effect.
    pub taints: Vec<Sourced<Taint>>,
    /// The features that its kubelet declares, in order. Only an observed Node shows them.
    pub declared_features: Vec<Sourced<String>>,
}

/// Serialized with the three amounts of each resource together.
impl Serialize for NodeTemplate {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Resource<'a> {
            allocatable: String,
            capacity: &'a Sourced<Quantity>,
            #[serde(skip_serializing_if = "Option::is_none")]
            overhead: Option<&'a Sourced<Quantity>>,
        }
        let resources = self.capacity.iter().map(|(name, capacity)| {
            let allocatable = self.without_overhead(name, capacity.value).to_string();
            (name, Resource { allocatable, capacity, overhead: self.overhead.get(name) })
        });
        let resources: BTreeMap<_, _> = resources.collect();
        let mut fields = serializer.serialize_struct("NodeTemplate", 4)?;
        fields.serialize_field("resources", &resources)?;
        fields.serialize_field("labels", &self.labels)?;
        fields.serialize_field("taints", &self.taints)?;
        if !self.declared_features.is_empty() {
            fields.serialize_field("declaredFeatures", &self.declared_features)?;
        }
        fields.end()
    }
}

impl NodeTemplate {
    /// Returns the allocatable amount of a resource: never less than 0 and never more than the capacity. `None` if
    /// the Node has no such resource.
    pub fn allocatable(&self, resource: &str) -> Option<Quantity> {
        Some(self.without_overhead(resource, self.capacity.get(resource)?.value))
    }

    /// Returns the source of cpu and memory, the stronger one if they have two.
    pub fn source(&self) -> Option<&Source> {
        let sources = [CPU, MEMORY].into_iter().filter_map(|resource| Some(&self.capacity.get(resource)?.source));
        sources.max_by_key(|source| match source {
            Source::Annotation(_) => 3,
            Source::Learned(_) => 2,
            Source::Remembered(_) => 1,
            Source::Default
            | Source::Flag(_)
            | Source::StatusCapacity(_)
            | Source::NodeInfo(..)
            | Source::TemplateMetadata
            | Source::TemplateSpec(_)
            | Source::RealNode(_)
            | Source::HugePages(_)
            | Source::PriceFile(_) => 0,
        })
    }

    pub(super) fn without_overhead(&self, resource: &str, capacity: Quantity) -> Quantity {
        match self.overhead.get(resource) {
            Some(overhead) if overhead.value >= capacity => Quantity::ZERO,
            Some(overhead) => capacity - overhead.value,
            None => capacity,
        }
    }
}

// The inputs of a group's template: the operator's rules, the group, and the observations of its Nodes.

/// The operator's rules for all templates.
#[derive(Clone, Debug)]
pub struct TemplateRules {
    /// The architecture if nothing else states it (`CAPI_SCALE_ZERO_DEFAULT_ARCH`).
    pub default_arch: Architecture,
    /// The regular expressions of Cluster API's flag `--additional-sync-machine-labels`. They match label keys,
    /// unanchored.
    pub additional_sync_labels: Vec<Regex>,
    /// The capacity of a Node that pods can't use, if no other source states it.
    pub default_overhead: ResourceList,
    /// True if resources other than cpu, memory, local disk and pods are taken from observed Nodes.
    pub learn_extended_resources: bool,
}

impl TemplateRules {
    /// The flag behind [`default_arch`](Self::default_arch).
    pub(crate) const DEFAULT_ARCH_FLAG: &str = "--scale-zero-default-arch";
    /// The flag behind [`default_overhead`](Self::default_overhead).
    pub const DEFAULT_OVERHEAD_FLAG: &str = "--default-node-overhead";
}

impl Default for TemplateRules {
    fn default() -> Self {
        Self {
            default_arch: Architecture::default(),
            additional_sync_labels: Vec::new(),
            default_overhead: ResourceList::new(),
            learn_extended_resources: true,
        }
    }
}

/// The inputs of a template other than the infrastructure template.
pub(super) struct Context<'a> {
    pub(super) group: &'a ScalableResource,
    pub(super) id: GroupId,
    pub(super) nodes: RealNodes<'a>,
    pub(super) rules: &'a TemplateRules,
}

// Encodes the template as the core/v1 Node that Cluster Autoscaler reads.

impl NodeTemplate {
    /// Returns a core/v1 Node of this name in protobuf, without an envelope: labels with the hostname, taints,
    /// capacity, allocatable, declared features, and the conditions of a healthy Node. Equal templates with equal names give equal
    /// bytes.
    pub fn encode(&self, name: &str) -> Bytes {
        let mut labels: BTreeMap<_, _> =
            self.labels.iter().map(|(key, value)| (key.clone(), value.value.clone())).collect();
        if let Entry::Vacant(entry) = labels.entry(HOSTNAME.to_owned()) {
            entry.insert(name.to_owned());
        }
        let resources = |amount: &dyn Fn(&str, Quantity) -> Quantity| {
            let wire = |(resource, stated): (&String, &Sourced<Quantity>)| {
                (resource.clone(), wire_quantity(amount(resource, stated.value)))
            };
            self.capacity.iter().map(wire).collect::<BTreeMap<_, _>>()
        };
        let node = wire::Node {
            metadata: Some(ObjectMeta { name: Some(name.to_owned()), labels, ..ObjectMeta::default() }),
            spec: Some(wire::NodeSpec {
                taints: self.taints.iter().map(|taint| wire_taint(&taint.value)).collect(),
                ..wire::NodeSpec::default()
            }),
            status: Some(wire::NodeStatus {
                capacity: resources(&|_, capacity| capacity),
                allocatable: resources(&|resource, capacity| self.without_overhead(resource, capacity)),
                declared_features: self.declared_features.iter().map(|feature| feature.value.clone()).collect(),
                conditions: CONDITIONS.iter().map(|(kind, status)| wire_condition(kind, status)).collect(),
                ..wire::NodeStatus::default()
            }),
        };
        node.encode_to_vec().into()
    }
}

/// The conditions of a healthy Node.
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
