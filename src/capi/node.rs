//! Node of the workload cluster: how it leads to its Machine, and what a template takes over: labels and resources.

mod resources;

use arcstr::ArcStr;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::Value;

pub use self::resources::NodeResources;
use super::{Context, Meta, ObjectKey, bounded, wire};
use crate::informer::{Document, Projection};

/// A Node as read here.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Node {
    /// Identity; the namespace is empty.
    pub meta: Meta,
    /// `spec.providerID` where it isn't empty.
    pub provider_id: Option<ArcStr>,
    /// The Machine named by the annotation machine, with its namespace there or in cluster-namespace.
    pub machine: Option<ObjectKey>,
    /// Those labels of [`Node::TEMPLATE_LABELS`] that are set.
    pub template_labels: TemplateLabels,
    /// What it has, while it is ready and nobody deletes it: at other times it may show less.
    pub resources: Option<NodeResources>,
}

/// The values of [`Node::TEMPLATE_LABELS`], by position: the keys are the same for all Nodes.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct TemplateLabels([Option<ArcStr>; Node::TEMPLATE_LABELS.len()]);

impl TemplateLabels {
    /// Those that are set, in the order of [`Node::TEMPLATE_LABELS`].
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, &ArcStr)> {
        Node::TEMPLATE_LABELS.into_iter().zip(&self.0).filter_map(|(key, value)| Some((key, value.as_ref()?)))
    }
}

/// Other keys are left out.
impl FromIterator<(&'static str, ArcStr)> for TemplateLabels {
    fn from_iter<I: IntoIterator<Item = (&'static str, ArcStr)>>(labels: I) -> Self {
        let mut all = Self::default();
        for (key, value) in labels {
            for (place, _) in all.0.iter_mut().zip(Node::TEMPLATE_LABELS).filter(|(_, known)| *known == key) {
                *place = Some(value.clone());
            }
        }
        all
    }
}

#[derive(Deserialize)]
struct Spec<'a> {
    #[serde(borrow, rename = "providerID")]
    provider_id: Option<wire::Text<'a>>,
}

/// The JSON of a Node.
struct Json;

impl Document for Json {
    type Json<'a> = wire::Object<'a, Spec<'a>, resources::Status<'a>>;
}

impl Node {
    /// The labels a template takes over from a real Node of its group.
    pub const TEMPLATE_LABELS: [&'static str; 5] = [
        "kubernetes.io/arch",
        "kubernetes.io/os",
        "node.kubernetes.io/instance-type",
        "topology.kubernetes.io/region",
        "topology.kubernetes.io/zone",
    ];

    /// Decodes a Node.
    ///
    /// # Errors
    /// The text of the decoding error, when a field that is read has another type.
    pub fn decode(meta: Meta, value: &Value, context: &Context) -> Result<Self, String> {
        wire::read(value).map(|json| Self::of(meta, json, context))
    }

    /// The projection by which an informer reads Nodes.
    #[must_use]
    pub fn projection(context: &Arc<Context>) -> Projection<Self> {
        let context = Arc::clone(context);
        Projection::typed::<Json>("capi/Node", move |meta, json| Ok(Self::of(meta, json, &context)))
    }

    fn of(meta: Meta, object: wire::Object<'_, Spec<'_>, resources::Status<'_>>, context: &Context) -> Self {
        let metadata = &object.metadata;
        let machine = context.keys.machine_of(|key| metadata.annotation(key)).map(|(namespace, name)| ObjectKey {
            namespace: context.interner.intern(&bounded::value(namespace)),
            name: context.interner.intern(&bounded::value(name)),
        });
        let template_labels = Self::TEMPLATE_LABELS
            .into_iter()
            .filter_map(|key| Some((key, context.interner.intern(&bounded::value(metadata.label(key)?)))))
            .collect();
        let resources = match (&metadata.deletion_timestamp, &object.status) {
            (None, Some(status)) => NodeResources::of(status, &context.interner),
            (Some(_), _) | (None, None) => None,
        };
        Self {
            resources,
            provider_id: object
                .spec
                .and_then(|spec| spec.provider_id)
                .filter(|id| !id.is_empty())
                .map(|id| context.interner.intern(&bounded::value(&id))),
            machine,
            template_labels,
            meta,
        }
    }

    /// The value of one of [`Node::TEMPLATE_LABELS`].
    #[must_use]
    pub fn template_label(&self, key: &str) -> Option<&str> {
        self.template_labels.iter().find(|(known, _)| *known == key).map(|(_, value)| value.as_str())
    }
}
