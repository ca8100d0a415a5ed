//! Node of the workload cluster: how it leads to its Machine, and the labels a template takes over.

use arcstr::ArcStr;
use std::borrow::Cow;

use serde::Deserialize;
use serde_json::Value;

use super::{Context, Meta, ObjectKey, wire};

/// A Node as read here.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Node {
    /// Identity; the namespace is empty.
    pub meta: Meta,
    /// `spec.providerID` where it isn't empty.
    pub provider_id: Option<ArcStr>,
    /// The Machine named by the annotations machine and cluster-namespace, where both are set.
    pub machine: Option<ObjectKey>,
    /// Those labels of [`Node::TEMPLATE_LABELS`] that are set, in that order.
    pub template_labels: Box<[(&'static str, ArcStr)]>,
}

#[derive(Deserialize)]
struct Spec<'a> {
    #[serde(borrow, rename = "providerID")]
    provider_id: Option<Cow<'a, str>>,
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
        let object: wire::Object<'_, Spec<'_>, serde::de::IgnoredAny> =
            Deserialize::deserialize(value).map_err(|error| error.to_string())?;
        let metadata = &object.metadata;
        let machine = metadata.annotation(&context.keys.machine).and_then(|name| {
            let namespace = metadata.annotation(&context.keys.cluster_namespace)?;
            Some(ObjectKey { namespace: context.interner.intern(namespace), name: context.interner.intern(name) })
        });
        let template_labels = Self::TEMPLATE_LABELS
            .into_iter()
            .filter_map(|key| Some((key, context.interner.intern(metadata.label(key)?))))
            .collect();
        Ok(Self {
            provider_id: object
                .spec
                .and_then(|spec| spec.provider_id)
                .filter(|id| !id.is_empty())
                .map(|id| context.interner.intern(&id)),
            machine,
            template_labels,
            meta,
        })
    }

    /// The value of one of [`Node::TEMPLATE_LABELS`].
    #[must_use]
    pub fn template_label(&self, key: &str) -> Option<&str> {
        self.template_labels.iter().find(|(known, _)| *known == key).map(|(_, value)| value.as_ref())
    }
}
