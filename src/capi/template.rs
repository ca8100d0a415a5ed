//! Infrastructure template of any group and kind: the capacity it promises.

use arcstr::ArcStr;
use std::{borrow::Cow, collections::BTreeMap};

use serde::Deserialize;
use serde_json::Value;

use super::{Meta, bounded, wire};

/// An infrastructure template as read here.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct InfrastructureTemplate {
    /// Identity.
    pub meta: Meta,
    /// `status.capacity` as it stands: resource name to quantity, integers as their decimal text.
    pub capacity: BTreeMap<ArcStr, String>,
    /// `status.nodeInfo.architecture` where it isn't empty.
    pub architecture: Option<ArcStr>,
    /// `status.nodeInfo.operatingSystem` where it isn't empty.
    pub operating_system: Option<ArcStr>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Status<'a> {
    #[serde(borrow)]
    capacity: Option<BTreeMap<Cow<'a, str>, Value>>,
    #[serde(borrow)]
    node_info: Option<NodeInfo<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct NodeInfo<'a> {
    #[serde(borrow, default)]
    architecture: Cow<'a, str>,
    #[serde(borrow, default)]
    operating_system: Cow<'a, str>,
}

impl InfrastructureTemplate {
    /// Decodes an infrastructure template of any kind.
    ///
    /// # Errors
    /// The text of the decoding error, when a field that is read has another type.
    pub fn decode(meta: Meta, value: &Value) -> Result<Self, String> {
        let object: wire::Object<'_, serde::de::IgnoredAny, Status<'_>> =
            Deserialize::deserialize(value).map_err(|error| error.to_string())?;
        let status = object.status.unwrap_or(Status { capacity: None, node_info: None });
        let text = |text: Cow<'_, str>| (!text.is_empty()).then(|| ArcStr::from(bounded::value(&text)));
        let (architecture, operating_system) =
            status.node_info.map_or((None, None), |info| (text(info.architecture), text(info.operating_system)));
        let capacity = status
            .capacity
            .into_iter()
            .flatten()
            .map(|(resource, quantity)| (ArcStr::from(resource), wire::capacity_text(&quantity)))
            .collect();
        Ok(Self { meta, capacity, architecture, operating_system })
    }
}
