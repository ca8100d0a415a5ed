//! Cluster: whether it is paused.

use serde::Deserialize;
use serde_json::Value;

use super::{Meta, wire};

/// A Cluster as read here.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Cluster {
    /// Identity.
    pub meta: Meta,
    /// `spec.paused`: everything of this Cluster is paused. The annotation `cluster.x-k8s.io/paused` on the Cluster
    /// pauses only the Cluster itself.
    pub paused: bool,
}

#[derive(Deserialize)]
struct Spec {
    #[serde(default)]
    paused: Option<bool>,
}

impl Cluster {
    /// Decodes a Cluster of either contract version.
    ///
    /// # Errors
    /// The text of the decoding error, when a field that is read has another type.
    pub fn decode(meta: Meta, value: &Value) -> Result<Self, String> {
        let object: wire::Object<'_, Spec, serde::de::IgnoredAny> =
            Deserialize::deserialize(value).map_err(|error| error.to_string())?;
        Ok(Self { meta, paused: object.spec.and_then(|spec| spec.paused).unwrap_or_default() })
    }
}
