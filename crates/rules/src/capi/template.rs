//! Infrastructure template of any group and kind, with the capacity it reports.

use arcstr::ArcStr;
use std::collections::BTreeMap;

use serde::{Deserialize, de::IgnoredAny};
use serde_json::Value;
use shared_informer::{Document, Projection};

use super::{MOST_KEPT, Meta, wire};

/// An infrastructure template as read here.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct InfrastructureTemplate {
    /// Identity.
    pub meta: Meta,
    /// `status.capacity`: the resource name and its quantity, with integers as their decimal text.
    pub capacity: BTreeMap<ArcStr, String>,
    /// `status.nodeInfo.architecture`, if it isn't empty.
    pub architecture: Option<ArcStr>,
    /// `status.nodeInfo.operatingSystem`, if it isn't empty.
    pub operating_system: Option<ArcStr>,
    /// True if `status.infrastructureMachineKind` of a MachinePool's infrastructure isn't empty: Cluster API then makes
    /// a Machine for each instance.
    pub makes_machines: bool,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Status<'a> {
    #[serde(borrow)]
    capacity: Option<wire::Map<'a, wire::Amount<'a>>>,
    #[serde(borrow)]
    node_info: Option<NodeInfo<'a>>,
    #[serde(borrow, default)]
    infrastructure_machine_kind: wire::Text<'a>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct NodeInfo<'a> {
    #[serde(borrow, default)]
    architecture: wire::Text<'a>,
    #[serde(borrow, default)]
    operating_system: wire::Text<'a>,
}

/// The JSON of an infrastructure template.
struct Json;

impl Document for Json {
    type Json<'a> = wire::Object<'a, IgnoredAny, Status<'a>>;
}

impl InfrastructureTemplate {
    /// Decodes an infrastructure template of any kind.
    ///
    /// # Errors
    /// The text of the decoding error, when a field that is read has another type.
    pub fn decode(meta: Meta, value: &Value) -> Result<Self, String> {
        Self::of(meta, wire::read(value)?)
    }

    /// Returns the projection with which an informer reads infrastructure templates.
    #[must_use]
    pub fn projection() -> Projection<Self> {
        Projection::typed::<Json>("capi/template", Self::of)
            .with_identity_within(|template| &template.meta)
            .with_bytes(Self::bytes)
    }

    /// Returns the bytes of its texts, without its identity.
    pub(super) fn bytes(&self) -> usize {
        let amounts = self.capacity.iter().map(|(name, amount)| wire::listed_bytes([name]) + amount.len());
        amounts.sum::<usize>() + wire::bytes(self.architecture.iter().chain(&self.operating_system))
    }

    fn of(meta: Meta, object: wire::Object<'_, IgnoredAny, Status<'_>>) -> Result<Self, String> {
        let status = object.status.unwrap_or_default();
        let makes_machines = !status.infrastructure_machine_kind.is_empty();
        let text = |text: wire::Text<'_>| (!text.is_empty()).then(|| ArcStr::from(wire::value(&text)));
        let (architecture, operating_system) =
            status.node_info.map_or((None, None), |info| (text(info.architecture), text(info.operating_system)));
        let mut kept = wire::TotalSize::at_most(MOST_KEPT);
        let capacity = status
            .capacity
            .iter()
            .flat_map(wire::Map::iter)
            .map(|(resource, quantity)| {
                let quantity = quantity.text();
                kept.add([resource, &quantity]);
                kept.check("the amounts of status.capacity")?;
                Ok((ArcStr::from(resource), quantity.into_owned()))
            })
            .collect::<Result<_, String>>()?;
        Ok(Self { meta, capacity, architecture, operating_system, makes_machines })
    }
}
