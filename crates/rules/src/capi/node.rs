//! A Node of the workload cluster: the reference to its Machine, and the labels and resources that a template copies
//! from it.

mod other_labels;

use std::{
    borrow::Cow,
    collections::{BTreeSet, HashMap},
    fmt::Write as _,
    sync::Arc,
};

use arcstr::ArcStr;
use jiff::SignedDuration;
use serde::Deserialize;
use serde_json::Value;
use shared_informer::{Document, Interner, Projection};

use super::{Context, Created, LONGEST_VALUE, Meta, ObjectKey, node::other_labels::SharedTexts, wire};

pub use super::node::other_labels::OtherLabels;

/// The decoded part of a Node.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Node {
    /// Identity; the namespace is empty.
    pub meta: Meta,
    /// `spec.providerID`, if it isn't empty.
    pub provider_id: Option<ArcStr>,
    /// The Machine in the annotation `machine`; its namespace is in the same annotation or in `cluster-namespace`.
    pub machine: Option<ObjectKey>,
    /// The labels of [`Node::TEMPLATE_LABELS`] that are set.
    pub template_labels: TemplateLabels,
    /// Its other labels that may describe its group.
    pub other_labels: OtherLabels,
    /// The Node's resources, only while it is ready and not being deleted: otherwise it may report fewer.
    pub resources: Option<NodeResources>,
    /// The time of its creation.
    pub created: Created,
    /// True while Cluster Autoscaler doesn't count it as ready and it isn't being deleted.
    pub is_unready: bool,
}

/// The taints of a Node that isn't complete yet, which Cluster Autoscaler counts as unready: the API server's own, those
/// of Cluster API and of a cloud provider, and (by prefix) Cluster Autoscaler's `--startup-taint` by convention.
const STARTUP_TAINTS: [&str; 3] = [
    "node.kubernetes.io/not-ready",
    "node.cluster.x-k8s.io/uninitialized",
    "node.cloudprovider.kubernetes.io/uninitialized",
];
const STARTUP_TAINT_PREFIX: &str = "startup-taint.cluster-autoscaler.kubernetes.io/";

/// The values of [`Node::TEMPLATE_LABELS`] in one string, which Nodes with equal values share. Each label has a line:
/// `=` and the value if the label is set, otherwise an empty line.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct TemplateLabels(ArcStr);

impl TemplateLabels {
    fn text<'a>(value_of: impl Fn(&'static str) -> Option<Cow<'a, str>>) -> String {
        let mut text = String::with_capacity(128);
        for key in Node::TEMPLATE_LABELS {
            // An API server accepts no label with a line break.
            if let Some(value) = value_of(key).filter(|value| !value.contains('\n')) {
                text.push('=');
                text.push_str(&value);
            }
            text.push('\n');
        }
        text
    }

    /// Returns the labels that are set, in the order of [`Node::TEMPLATE_LABELS`].
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let lines = Node::TEMPLATE_LABELS.into_iter().zip(self.0.split('\n'));
        lines.filter_map(|(key, line)| Some((key, line.strip_prefix('=')?)))
    }
}

/// Keys that aren't in [`Node::TEMPLATE_LABELS`] are ignored.
impl FromIterator<(&'static str, ArcStr)> for TemplateLabels {
    fn from_iter<I: IntoIterator<Item = (&'static str, ArcStr)>>(labels: I) -> Self {
        let labels: HashMap<_, _> = labels.into_iter().collect();
        Self(Self::text(|key| labels.get(key).map(|value| value.as_str().into())).into())
    }
}

#[derive(Deserialize)]
struct Spec<'a> {
    #[serde(borrow, rename = "providerID")]
    provider_id: Option<wire::Text<'a>>,
    taints: Option<Vec<Taint<'a>>>,
}

#[derive(Deserialize)]
struct Taint<'a> {
    #[serde(borrow, default)]
    key: wire::Text<'a>,
}

/// The JSON of a Node.
struct Json;

impl Document for Json {
    type Json<'a> = wire::Object<'a, Spec<'a>, Status<'a>>;
}

impl Node {
    /// The labels that a template copies from a real Node of its group.
    pub const TEMPLATE_LABELS: [&'static str; 6] = [
        "kubernetes.io/arch",
        "kubernetes.io/os",
        "node.kubernetes.io/instance-type",
        "node.kubernetes.io/windows-build",
        "topology.kubernetes.io/region",
        "topology.kubernetes.io/zone",
    ];

    /// Decodes a Node.
    ///
    /// # Errors
    /// The text of the decoding error, if a field has an unexpected type.
    pub fn decode(meta: Meta, value: &Value, context: &Context) -> Result<Self, String> {
        wire::read(value).map(|json| Self::of(meta, json, context, &SharedTexts::default()))
    }

    /// Returns the projection with which an informer reads the Nodes of a workload cluster.
    pub fn projection(context: &Arc<Context>) -> Projection<Self> {
        let context = Arc::clone(context);
        let texts = SharedTexts::default();
        Projection::typed::<Json>("capi/Node", move |meta, json| Ok(Self::of(meta, json, &context, &texts)))
            .with_identity_within(|node| &node.meta)
            .with_bytes(Self::bytes)
    }

    /// Returns the bytes of its texts, without its identity and those of [`OtherLabels`], which have a limit of their own.
    pub(super) fn bytes(&self) -> usize {
        let machine = self.machine.iter().flat_map(|machine| [&machine.namespace, &machine.name]);
        let resources = self.resources.as_ref().map(NodeResources::text);
        wire::bytes(machine.chain(&self.provider_id).chain([&self.template_labels.0]).chain(resources))
    }

    fn of(meta: Meta, object: wire::Object<'_, Spec<'_>, Status<'_>>, context: &Context, texts: &SharedTexts) -> Self {
        let metadata = &object.metadata;
        let machine = context.keys.machine_of(|key| metadata.annotation(key)).map(|(namespace, name)| ObjectKey {
            namespace: context.interner.intern(&wire::value(namespace)),
            name: context.interner.intern(&wire::value(name)),
        });
        let labels = TemplateLabels::text(|key| metadata.label(key).map(wire::value));
        let names = crate::node_labels::Names {
            node: &meta.key.name,
            machine: machine.as_ref().map(|machine: &ObjectKey| machine.name.as_str()),
            provider_id: object.spec.as_ref().and_then(|spec| spec.provider_id.as_deref()),
        };
        let other_labels = OtherLabels::of(metadata.labels.as_ref(), &names, texts);
        let resources = match (&metadata.deletion_timestamp, &object.status) {
            (None, Some(status)) => NodeResources::of(status, &context.interner),
            (Some(_), _) | (None, None) => None,
        };
        let is_ready = object.status.as_ref().is_some_and(Status::is_ready)
            && !object.spec.as_ref().is_some_and(Spec::has_startup_taint);
        Self {
            resources,
            created: Created::at(metadata.created()),
            is_unready: !is_ready && metadata.deletion_timestamp.is_none(),
            provider_id: object
                .spec
                .and_then(|spec| spec.provider_id)
                .filter(|id| !id.is_empty())
                .map(|id| context.interner.intern(&wire::value(&id))),
            machine,
            template_labels: TemplateLabels(context.interner.intern(&labels)),
            other_labels,
            meta,
        }
    }

    /// Returns the value of one of [`Node::TEMPLATE_LABELS`].
    pub fn template_label(&self, key: &str) -> Option<&str> {
        self.template_labels.iter().find(|(known, _)| *known == key).map(|(_, value)| value)
    }
}

// Capacity, allocatable and declared features of a Node as one text, which similar Nodes share. A fleet has a hundred thousand Nodes,
// and a map in each would take more memory than everything else.

/// The time for which a Node must be ready before its extended resources count as complete: device plugins start after
/// the kubelet.
pub const SETTLED_AFTER: SignedDuration = SignedDuration::from_mins(10);

/// The mark of a Node that is settled.
const SETTLED_MARK: &str = " settled";

/// The begin of the line of features.
const FEATURES: char = '!';

/// The resources of a Node, as one text: a line `name capacity allocatable` per resource, ordered by name, a line `!` with
/// the features that its kubelet declares, separated by spaces, if there are any, and last the number of extended
/// resources and huge pages, without those of 0, followed by a mark if the Node is settled.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct NodeResources(ArcStr);

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Status<'a> {
    #[serde(borrow)]
    capacity: Option<wire::Map<'a, wire::Amount<'a>>>,
    allocatable: Option<wire::Map<'a, wire::Amount<'a>>>,
    declared_features: Option<Vec<wire::Text<'a>>>,
    conditions: Option<Vec<Condition<'a>>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Condition<'a> {
    #[serde(borrow, rename = "type", default)]
    kind: wire::Text<'a>,
    #[serde(default)]
    status: wire::Text<'a>,
    last_heartbeat_time: Option<wire::Text<'a>>,
    last_transition_time: Option<wire::Text<'a>>,
}

impl Condition<'_> {
    /// Returns true if the condition had kept its status for [`SETTLED_AFTER`] when the kubelet last wrote it.
    fn is_settled(&self) -> bool {
        let time = |text: &Option<wire::Text<'_>>| wire::time(text.as_ref()?);
        match (time(&self.last_transition_time), time(&self.last_heartbeat_time)) {
            (Some(since), Some(seen)) => seen.duration_since(since) >= SETTLED_AFTER,
            (Some(_) | None, Some(_) | None) => false,
        }
    }
}

impl Spec<'_> {
    fn has_startup_taint(&self) -> bool {
        let is_one =
            |taint: &Taint<'_>| STARTUP_TAINTS.contains(&&*taint.key) || taint.key.starts_with(STARTUP_TAINT_PREFIX);
        self.taints.iter().flatten().any(is_one)
    }
}

impl Status<'_> {
    fn ready(&self) -> Option<&Condition<'_>> {
        self.conditions.iter().flatten().find(|condition| condition.kind == "Ready")
    }

    fn is_ready(&self) -> bool {
        self.ready().is_some_and(|ready| ready.status == "True")
    }
}

impl NodeResources {
    /// Returns the resources of a Node, or `None` if it isn't ready, reports no cpu or memory, or reports more
    /// resources than any Node has.
    pub(super) fn of(status: &Status<'_>, interner: &Interner) -> Option<Self> {
        let ready = status.ready()?;
        let (capacity, allocatable) = (status.capacity.as_ref()?, status.allocatable.as_ref()?);
        let has = |name: &str| capacity.get(name).is_some_and(|amount| !matches!(&*amount.text(), "" | "0"));
        if ready.status != "True" || !has("cpu") || !has("memory") {
            return None;
        }
        let mut text = String::new();
        let mut extended = 0_u16;
        for (name, capacity) in capacity.iter() {
            let Some(allocatable) = allocatable.get(name) else { continue };
            let (capacity, allocatable) = (capacity.text(), allocatable.text());
            if [name, &capacity, &allocatable].iter().any(|part| part.is_empty() || part.contains([' ', '\n'])) {
                continue;
            }
            if (name.contains('/') || name.starts_with("hugepages-")) && capacity != "0" {
                extended = extended.saturating_add(1);
            }
            let written = writeln!(text, "{name} {capacity} {allocatable}");
            debug_assert!(written.is_ok(), "a text takes all");
            if text.len() > LONGEST_VALUE {
                return None;
            }
        }
        let features = status.declared_features.iter().flatten().filter(|feature| is_feature(feature));
        let features: BTreeSet<_> = features.map(|feature| &**feature).collect();
        if !features.is_empty() {
            text.push(FEATURES);
            text.extend(features.iter().flat_map(|feature| [feature, " "]));
            text.push('\n');
        }
        if text.len() > LONGEST_VALUE {
            return None;
        }
        let written = write!(text, "{extended}{}", if ready.is_settled() { SETTLED_MARK } else { "" });
        debug_assert!(written.is_ok(), "a text takes all");
        Some(Self(interner.intern(&text)))
    }

    /// Returns the lines of the resources, and the last line.
    fn parts(&self) -> (&str, &str) {
        self.0.rsplit_once('\n').unwrap_or(("", &self.0))
    }

    pub(super) fn text(&self) -> &ArcStr {
        &self.0
    }

    /// Iterates over the resources as name, capacity and allocatable, each as the Node reports it.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str, &str)> {
        self.parts().0.lines().filter(|line| !line.starts_with(FEATURES)).filter_map(|line| {
            let (name, amounts) = line.split_once(' ')?;
            let (capacity, allocatable) = amounts.split_once(' ')?;
            Some((name, capacity, allocatable))
        })
    }

    /// Iterates over the features that the kubelet declares (`status.declaredFeatures`), in order.
    pub fn declared_features(&self) -> impl Iterator<Item = &str> {
        self.parts()
            .0
            .lines()
            .filter_map(|line| line.strip_prefix(FEATURES))
            .flat_map(|line| line.split_terminator(' '))
    }

    /// Returns true if the resources and features are the same.
    pub fn says_the_same_as(&self, other: &Self) -> bool {
        self.parts().0 == other.parts().0
    }

    /// Returns the number of its extended resources and huge pages, without those of 0.
    pub fn extended(&self) -> u16 {
        let last = self.parts().1;
        last.strip_suffix(SETTLED_MARK).unwrap_or(last).parse().unwrap_or_default()
    }

    /// Returns true if the Node has been ready for so long that no further resources are expected.
    pub fn is_settled(&self) -> bool {
        self.parts().1.ends_with(SETTLED_MARK)
    }
}

/// Returns true for a name that a feature may have: an API server accepts others too.
fn is_feature(name: &str) -> bool {
    (1..=253).contains(&name.len())
        && name.bytes().all(|c| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'_' | b'.' | b'/'))
}
