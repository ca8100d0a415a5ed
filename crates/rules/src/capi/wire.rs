//! The JSON of the objects, with both contract versions in one set of types: a field that one version lacks is absent
//! there. These types borrow from the JSON and live only while an object is decoded.

use std::{borrow::Cow, fmt, marker::PhantomData, ops::Deref};

use jiff::Timestamp;
use serde::{
    Deserialize,
    de::{Deserializer, MapAccess, SeqAccess, Visitor, value},
};
use serde_json::Value;
use shared_informer::{Identified, Identity, IdentityText, from_object};

use super::{Keys, Owner, bounded};

/// Text that borrows from the JSON unless it has escapes. Serde copies a plain `Cow` inside an `Option` or a list.
#[derive(Clone, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub(super) struct Text<'a>(Cow<'a, str>);

impl Deref for Text<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl PartialEq<&str> for Text<'_> {
    fn eq(&self, other: &&str) -> bool {
        self.0 == *other
    }
}

impl PartialEq<str> for Text<'_> {
    fn eq(&self, other: &str) -> bool {
        self.0 == other
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Text<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextVisitor;

        impl<'de> Visitor<'de> for TextVisitor {
            type Value = Text<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }

            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(Text(Cow::Borrowed(text)))
            }

            fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
                Ok(Text(Cow::Owned(text.to_owned())))
            }

            fn visit_string<E>(self, text: String) -> Result<Self::Value, E> {
                Ok(Text(Cow::Owned(text)))
            }
        }

        deserializer.deserialize_str(TextVisitor)
    }
}

/// A map with text keys, in the order of the keys. If a key is repeated, the last value counts.
#[derive(Debug, Default)]
pub(super) struct Map<'a, V>(Vec<(Text<'a>, V)>);
/// A map of texts.
pub(super) type Texts<'a> = Map<'a, Text<'a>>;

impl<'a, V> Map<'a, V> {
    pub(super) fn get(&self, key: &str) -> Option<&V> {
        let place = self.0.binary_search_by(|(known, _)| (**known).cmp(key)).ok()?;
        self.0.get(place).map(|(_, value)| value)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &V)> + use<'_, 'a, V> {
        self.0.iter().map(|(key, value)| (&**key, value))
    }
}

impl<'de: 'a, 'a, V: Deserialize<'de>> Deserialize<'de> for Map<'a, V> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct EntriesVisitor<V>(PhantomData<V>);

        impl<'de, V: Deserialize<'de>> Visitor<'de> for EntriesVisitor<V> {
            type Value = Vec<(Text<'de>, V)>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                /// Most objects have no more labels and annotations than this.
                const USUAL: usize = 8;
                let mut entries = Vec::new();
                while let Some(entry) = map.next_entry::<Text<'de>, V>()? {
                    if entries.is_empty() {
                        entries.reserve(USUAL);
                    }
                    entries.push(entry);
                }
                Ok(entries)
            }
        }

        let mut entries = deserializer.deserialize_map(EntriesVisitor(PhantomData))?;
        // An API server writes maps in the order of their keys, so sorting is rare.
        if !entries.is_sorted_by(|(one, _), (other, _)| one < other) {
            entries.reverse();
            entries.sort_by(|(one, _), (other, _)| one.cmp(other));
            entries.dedup_by(|(later, _), (earlier, _)| later == earlier);
        }
        Ok(Self(entries))
    }
}

/// An object of any kind, with the parts that are read.
#[derive(Debug, Deserialize)]
#[serde(bound(deserialize = "Spec: Deserialize<'de>, Status: Deserialize<'de>"))]
pub(super) struct Object<'a, Spec, Status> {
    #[serde(borrow, default, deserialize_with = "from_object")]
    pub(super) metadata: Metadata<'a>,
    pub(super) spec: Option<Spec>,
    pub(super) status: Option<Status>,
}

impl<Spec, Status> Identified for Object<'_, Spec, Status> {
    fn identity(&self) -> Identity<'_> {
        let Metadata { namespace, name, uid, resource_version, .. } = &self.metadata;
        Identity { namespace, name, uid, resource_version }
    }
}

/// Deserializes the JSON of an object as one of these types.
///
/// # Errors
/// The text of the decoding error, when a field that is read has another type.
pub(super) fn read<'a, T: Deserialize<'a>>(value: &'a Value) -> Result<T, String> {
    T::deserialize(value).map_err(|error| error.to_string())
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Metadata<'a> {
    #[serde(borrow, default)]
    namespace: IdentityText<'a>,
    #[serde(borrow, default)]
    name: IdentityText<'a>,
    #[serde(borrow, default)]
    uid: IdentityText<'a>,
    #[serde(borrow, default)]
    resource_version: IdentityText<'a>,
    #[serde(borrow)]
    pub(super) labels: Option<Texts<'a>>,
    #[serde(borrow)]
    pub(super) annotations: Option<Texts<'a>>,
    #[serde(borrow)]
    owner_references: Option<Vec<OwnerReference<'a>>>,
    #[serde(borrow)]
    pub(super) deletion_timestamp: Option<Text<'a>>,
    #[serde(borrow)]
    creation_timestamp: Option<Text<'a>>,
    pub(super) generation: Option<i64>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct OwnerReference<'a> {
    #[serde(borrow)]
    api_version: Text<'a>,
    #[serde(borrow)]
    kind: Text<'a>,
    #[serde(borrow)]
    name: Text<'a>,
    #[serde(default)]
    controller: bool,
}

impl Metadata<'_> {
    /// Returns the owner of one of these kinds in Cluster API's group; the controlling one takes precedence.
    pub(super) fn owner(&self, keys: &Keys, kinds: &[&str]) -> Option<Owner<'_>> {
        let owners = self
            .owner_references
            .iter()
            .flatten()
            .filter(|owner| kinds.contains(&&*owner.kind))
            .filter(|owner| group_of(&owner.api_version) == keys.group);
        owners.min_by_key(|owner| !owner.controller).map(|owner| Owner { kind: &owner.kind, name: &owner.name })
    }

    /// Returns the creation time, if it can be parsed.
    pub(super) fn created(&self) -> Option<Timestamp> {
        bounded::time(self.creation_timestamp.as_ref()?)
    }

    /// Returns a label's value.
    pub(super) fn label(&self, key: &str) -> Option<&str> {
        self.labels.as_ref()?.get(key).map(|value| &**value)
    }

    /// Returns an annotation's value.
    pub(super) fn annotation(&self, key: &str) -> Option<&str> {
        self.annotations.as_ref()?.get(key).map(|value| &**value)
    }
}

/// Returns the group of `group/version`, or an empty text for the core group.
pub(super) fn group_of(api_version: &str) -> &str {
    api_version.split_once('/').map_or("", |(group, _)| group)
}

/// Returns the name of an object's Cluster, also if other fields don't decode: `spec.clusterName`, else the label. Each
/// is read by itself, past all other fields.
pub(super) fn cluster_name(json: &str, keys: &Keys) -> Option<String> {
    #[derive(Deserialize)]
    struct OfSpec<'a> {
        #[serde(borrow)]
        spec: SpecName<'a>,
    }

    #[derive(Deserialize)]
    struct SpecName<'a> {
        #[serde(borrow, rename = "clusterName")]
        cluster_name: Text<'a>,
    }

    #[derive(Deserialize)]
    struct OfLabels<'a> {
        #[serde(borrow)]
        metadata: Labels<'a>,
    }

    #[derive(Deserialize)]
    struct Labels<'a> {
        #[serde(borrow)]
        labels: Map<'a, Amount<'a>>,
    }

    let of_spec = serde_json::from_str::<OfSpec<'_>>(json).ok().map(|object| object.spec.cluster_name);
    let name = of_spec.filter(|name| !name.is_empty()).or_else(|| {
        let object = serde_json::from_str::<OfLabels<'_>>(json).ok()?;
        match object.metadata.labels.get(&keys.cluster_name)? {
            Amount::Text(name) => Some(name.clone()),
            Amount::Other(_) => None,
        }
    });
    name.filter(|name| !name.is_empty()).map(|name| bounded::value(&name).into_owned())
}

/// `infrastructureRef`: `apiVersion` in v1beta1, `apiGroup` in v1beta2.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Reference<'a> {
    #[serde(borrow)]
    pub(super) api_version: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) api_group: Option<Text<'a>>,
    #[serde(borrow, default)]
    pub(super) kind: Text<'a>,
    #[serde(borrow, default)]
    pub(super) name: Text<'a>,
}

/// `nodeRef`. Both contract versions have its name.
#[derive(Debug, Deserialize)]
pub(super) struct NodeRef<'a> {
    #[serde(borrow, default)]
    pub(super) name: Text<'a>,
}

/// A condition: metav1.Condition in v1beta2, Cluster API's own in v1beta1.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Condition<'a> {
    #[serde(borrow, rename = "type")]
    pub(super) kind: Text<'a>,
    #[serde(borrow)]
    pub(super) status: Text<'a>,
    #[serde(borrow, default)]
    pub(super) reason: Text<'a>,
    #[serde(borrow, default)]
    pub(super) message: Text<'a>,
    #[serde(borrow)]
    last_transition_time: Option<Text<'a>>,
}

impl Condition<'_> {
    /// Returns the time of the last transition, if it can be parsed.
    pub(super) fn since(&self) -> Option<Timestamp> {
        bounded::time(self.last_transition_time.as_ref()?)
    }
}

/// The v1beta2 fields of a v1beta1 object, since Cluster API 1.9.
#[derive(Debug, Deserialize)]
pub(super) struct V1Beta2<'a> {
    #[serde(borrow)]
    conditions: Option<Vec<Condition<'a>>>,
}

/// The v1beta1 fields of a v1beta2 object.
#[derive(Debug, Deserialize)]
pub(super) struct Deprecated<'a> {
    #[serde(borrow)]
    pub(super) v1beta1: Option<DeprecatedV1Beta1<'a>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct DeprecatedV1Beta1<'a> {
    #[serde(borrow)]
    pub(super) conditions: Option<Vec<Condition<'a>>>,
    #[serde(borrow)]
    pub(super) failure_reason: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) failure_message: Option<Text<'a>>,
}

/// Returns the condition of a type. A v1beta1 object may have it twice, with different texts: the v1beta2 one takes
/// precedence, so that both contract versions decode alike.
pub(super) fn condition<'a>(
    newer: Option<&'a V1Beta2<'a>>,
    own: Option<&'a Vec<Condition<'a>>>,
    kind: &str,
) -> Option<&'a Condition<'a>> {
    let newer = newer.and_then(|v1beta2| v1beta2.conditions.as_ref());
    [newer, own].into_iter().flatten().find_map(|conditions| conditions.iter().find(|condition| condition.kind == kind))
}

/// A value of any type, such as an amount of `status.capacity`, which is text or a number. Any other value is kept as
/// its JSON, so that the rules can report it.
#[derive(Debug)]
pub(super) enum Amount<'a> {
    Text(Text<'a>),
    Other(Value),
}

impl Amount<'_> {
    /// Returns the value as text, within the length limit.
    pub(super) fn text(&self) -> Cow<'_, str> {
        match self {
            Self::Text(text) => bounded::value(text),
            Self::Other(other) => bounded::value(&other.to_string()).into_owned().into(),
        }
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Amount<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct AmountVisitor;

        impl<'de> Visitor<'de> for AmountVisitor {
            type Value = Amount<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("any valid JSON value")
            }

            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(Amount::Text(Text(Cow::Borrowed(text))))
            }

            fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
                Ok(Amount::Text(Text(Cow::Owned(text.to_owned()))))
            }

            fn visit_unit<E>(self) -> Result<Self::Value, E> {
                Ok(Amount::Other(Value::Null))
            }

            fn visit_bool<E>(self, value: bool) -> Result<Self::Value, E> {
                Ok(Amount::Other(value.into()))
            }

            fn visit_i64<E>(self, value: i64) -> Result<Self::Value, E> {
                Ok(Amount::Other(value.into()))
            }

            fn visit_u64<E>(self, value: u64) -> Result<Self::Value, E> {
                Ok(Amount::Other(value.into()))
            }

            fn visit_f64<E>(self, value: f64) -> Result<Self::Value, E> {
                Ok(Amount::Other(value.into()))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<Self::Value, A::Error> {
                Value::deserialize(value::SeqAccessDeserializer::new(list)).map(Amount::Other)
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
                Value::deserialize(value::MapAccessDeserializer::new(map)).map(Amount::Other)
            }
        }

        deserializer.deserialize_any(AmountVisitor)
    }
}
