//! A Node of the workload cluster: the reference to its Machine, and the labels and resources that a template copies
//! from it.

mod labels;
mod resources;

use std::{borrow::Cow, collections::HashMap, sync::Arc};

use arcstr::ArcStr;

use serde::Deserialize;
use serde_json::Value;

use self::labels::{Names, SharedTexts};
pub use self::{labels::OtherLabels, resources::NodeResources};
use super::{Context, Meta, ObjectKey, bounded, wire};
use shared_informer::{Document, Projection};

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
}

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
}

/// The JSON of a Node.
struct Json;

impl Document for Json {
    type Json<'a> = wire::Object<'a, Spec<'a>, resources::Status<'a>>;
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
    #[must_use]
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
        bounded::bytes(machine.chain(&self.provider_id).chain([&self.template_labels.0]).chain(resources))
    }

    fn of(
        meta: Meta,
        object: wire::Object<'_, Spec<'_>, resources::Status<'_>>,
        context: &Context,
        texts: &SharedTexts,
    ) -> Self {
        let metadata = &object.metadata;
        let machine = context.keys.machine_of(|key| metadata.annotation(key)).map(|(namespace, name)| ObjectKey {
            namespace: context.interner.intern(&bounded::value(namespace)),
            name: context.interner.intern(&bounded::value(name)),
        });
        let labels = TemplateLabels::text(|key| metadata.label(key).map(bounded::value));
        let names = Names {
            node: &meta.key.name,
            machine: machine.as_ref().map(|machine: &ObjectKey| machine.name.as_str()),
            provider_id: object.spec.as_ref().and_then(|spec| spec.provider_id.as_deref()),
        };
        let other_labels = OtherLabels::of(metadata.labels.as_ref(), &names, texts);
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
            template_labels: TemplateLabels(context.interner.intern(&labels)),
            other_labels,
            meta,
        }
    }

    /// Returns the value of one of [`Node::TEMPLATE_LABELS`].
    #[must_use]
    pub fn template_label(&self, key: &str) -> Option<&str> {
        self.template_labels.iter().find(|(known, _)| *known == key).map(|(_, value)| value)
    }
}
