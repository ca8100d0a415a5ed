//! Infrastructure or bootstrap template of any group and kind, with the capacity it reports and a digest of its spec.

use arcstr::ArcStr;
use std::{collections::BTreeMap, fmt};

use aws_lc_rs::digest::{SHA256, digest};
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use shared_informer::{Document, Projection};

use super::{MOST_KEPT, Meta, wire};

/// An infrastructure template as read here.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct InfrastructureTemplate {
    /// Identity.
    pub meta: Meta,
    /// The digest of its spec.
    pub spec: SpecDigest,
    /// `metadata.generation`, 0 when absent: more than 1 if the spec was changed in place.
    pub generation: i64,
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
    node_info: Option<NodeInfo<'a>>,
    #[serde(default)]
    infrastructure_machine_kind: wire::Text<'a>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct NodeInfo<'a> {
    #[serde(borrow, default)]
    architecture: wire::Text<'a>,
    #[serde(default)]
    operating_system: wire::Text<'a>,
}

/// The JSON of an infrastructure template.
struct Json;

impl Document for Json {
    type Json<'a> = wire::Object<'a, SpecDigest, Status<'a>>;
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

    fn of(meta: Meta, object: wire::Object<'_, SpecDigest, Status<'_>>) -> Result<Self, String> {
        let spec = object.spec.unwrap_or_default();
        let generation = object.metadata.generation.unwrap_or_default();
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
        Ok(Self { meta, spec, generation, capacity, architecture, operating_system, makes_machines })
    }
}

/// The SHA-256 of a spec: equal for equal specs, in whatever order their fields are. Fields of a MachinePool's
/// infrastructure that name its instances don't count.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct SpecDigest([u8; 32]);

/// The fields of a spec that don't say what a new Node is.
const OF_INSTANCES: [&str; 3] = ["providerID", "providerIDList", "replicas"];

impl SpecDigest {
    /// Returns the digest of some bytes.
    pub fn of_bytes(bytes: &[u8]) -> Self {
        let mut of = [0; 32];
        of.copy_from_slice(digest(&SHA256, bytes).as_ref());
        Self(of)
    }

    /// Parses 64 hexadecimal digits in lower case.
    pub fn parse(text: &str) -> Option<Self> {
        let is_digit = |c: u8| c.is_ascii_digit() || (b'a'..=b'f').contains(&c);
        if text.len() != 64 || !text.bytes().all(is_digit) {
            return None;
        }
        let mut of = [0; 32];
        for (byte, at) in of.iter_mut().zip((0..).step_by(2)) {
            *byte = u8::from_str_radix(text.get(at..at + 2)?, 16).ok()?;
        }
        Some(Self(of))
    }
}

impl fmt::Display for SpecDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl<'de> Deserialize<'de> for SpecDigest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut spec = Value::deserialize(deserializer)?;
        if let Value::Object(fields) = &mut spec {
            fields.retain(|name, _| !OF_INSTANCES.contains(&name.as_str()));
        }
        let mut text = String::new();
        write_sorted(&spec, &mut text);
        Ok(Self::of_bytes(text.as_bytes()))
    }
}

/// Writes JSON with the fields of each object in order, without those that are null.
fn write_sorted(value: &Value, text: &mut String) {
    match value {
        Value::Object(fields) => {
            let fields: BTreeMap<_, _> = fields.iter().filter(|(_, value)| !value.is_null()).collect();
            text.push('{');
            for (name, value) in fields {
                text.push_str(&Value::from(name.as_str()).to_string());
                text.push(':');
                write_sorted(value, text);
                text.push(',');
            }
            text.push('}');
        }
        Value::Array(values) => {
            text.push('[');
            for value in values {
                write_sorted(value, text);
                text.push(',');
            }
            text.push(']');
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => text.push_str(&value.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    fn spec(value: &str) -> SpecDigest {
        serde_json::from_str(value).unwrap()
    }

    #[rstest]
    #[case::order(r#"{"a":1,"b":{"c":"x","d":[1,2]}}"#, r#"{"b":{"d":[1,2],"c":"x"},"a":1}"#, true)]
    #[case::space(r#"{"a":1}"#, r#"{ "a" : 1 }"#, true)]
    #[case::null(r#"{"a":1}"#, r#"{"a":1,"b":null}"#, true)]
    #[case::escapes(r#"{"a":"b"}"#, r#"{"a":"\u0062"}"#, true)]
    #[case::instances(r#"{"a":1}"#, r#"{"a":1,"providerIDList":["x"],"replicas":3}"#, true)]
    #[case::a_value(r#"{"a":1}"#, r#"{"a":2}"#, false)]
    #[case::order_of_a_list(r#"{"a":[1,2]}"#, r#"{"a":[2,1]}"#, false)]
    #[case::a_name(r#"{"a":1}"#, r#"{"b":1}"#, false)]
    #[case::texts_and_numbers(r#"{"a":"1"}"#, r#"{"a":1}"#, false)]
    #[case::nesting(r#"{"a":{"b":1},"c":1}"#, r#"{"a":{"b":1,"c":1}}"#, false)]
    fn equal_specs_have_equal_digests(#[case] one: &str, #[case] other: &str, #[case] same: bool) {
        assert_eq!(spec(one) == spec(other), same);
    }

    #[test]
    fn the_digest_is_of_the_spec_alone_and_is_read_as_it_is_written() {
        let of = |value: Value| InfrastructureTemplate::decode(crate::testing::meta("", "a"), &value).unwrap().spec;
        let one = of(json!({"metadata": {"name": "a"}, "spec": {"cpu": 4}, "status": {"capacity": {"cpu": 4}}}));
        assert_eq!(one, of(json!({"metadata": {"name": "b", "labels": {"c": "d"}}, "spec": {"cpu": 4}})));
        assert_ne!(one, of(json!({"spec": {"cpu": 8}})));
        assert_eq!(SpecDigest::parse(&one.to_string()), Some(one));
        assert_eq!(SpecDigest::parse(&one.to_string().to_uppercase()), None);
        assert_eq!(SpecDigest::of_bytes(b"abc").to_string().get(..16), Some("ba7816bf8f01cfea"));
    }
}
