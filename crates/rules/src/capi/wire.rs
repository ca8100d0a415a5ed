//! The JSON of the objects, with both contract versions in one set of types: a field that one version lacks is absent
//! there. These types borrow from the JSON and live only while an object is decoded.

use std::{
    borrow::{Borrow, Cow},
    collections::BTreeMap,
    fmt,
    ops::Deref,
};

use arcstr::ArcStr;
use jiff::Timestamp;
use serde::{
    Deserialize,
    de::{Deserializer, Visitor},
};
use serde_json::Value;
use shared_informer::{Identified, Identity, IdentityText};

use super::Keys;

/// Text that borrows from the JSON unless it has escapes. Serde copies a plain `Cow` inside an `Option` or a list. A
/// struct that has texts needs `#[serde(borrow)]` on one field, which is for all of them.
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

impl Borrow<str> for Text<'_> {
    fn borrow(&self) -> &str {
        &self.0
    }
}

/// A map with text keys, in the order of the keys. If a key is repeated, the last value counts.
#[derive(Debug, Default, Deserialize)]
#[serde(transparent, bound(deserialize = "V: Deserialize<'de>"))]
pub(super) struct Map<'a, V>(#[serde(borrow)] BTreeMap<Text<'a>, V>);

/// A map of texts.
pub(super) type Texts<'a> = Map<'a, Text<'a>>;

impl<'a, V> Map<'a, V> {
    pub(super) fn get(&self, key: &str) -> Option<&V> {
        self.0.get(key)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &V)> + use<'_, 'a, V> {
        self.0.iter().map(|(key, value)| (&**key, value))
    }
}

/// An object of any kind, with the parts that are read.
#[derive(Debug, Deserialize)]
#[serde(bound(deserialize = "Spec: Deserialize<'de>, Status: Deserialize<'de>"))]
pub(super) struct Object<'a, Spec, Status> {
    #[serde(borrow, default)]
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
    #[serde(default)]
    name: IdentityText<'a>,
    #[serde(default)]
    uid: IdentityText<'a>,
    #[serde(default)]
    resource_version: IdentityText<'a>,
    pub(super) labels: Option<Texts<'a>>,
    pub(super) annotations: Option<Texts<'a>>,
    owner_references: Option<Vec<OwnerReference<'a>>>,
    pub(super) deletion_timestamp: Option<Text<'a>>,
    creation_timestamp: Option<Text<'a>>,
    pub(super) generation: Option<i64>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct OwnerReference<'a> {
    #[serde(borrow)]
    api_version: Text<'a>,
    kind: Text<'a>,
    name: Text<'a>,
    #[serde(default)]
    controller: bool,
}

impl Metadata<'_> {
    /// Returns kind and name of the owner of one of these kinds in Cluster API's group, which is in the object's own
    /// namespace; the controlling one takes precedence.
    pub(super) fn owner(&self, keys: &Keys, kinds: &[&str]) -> Option<(&str, &str)> {
        let owners = self
            .owner_references
            .iter()
            .flatten()
            .filter(|owner| kinds.contains(&&*owner.kind))
            .filter(|owner| group_of(&owner.api_version) == keys.group);
        owners.min_by_key(|owner| !owner.controller).map(|owner| (&*owner.kind, &*owner.name))
    }

    /// Returns the creation time, if it can be parsed.
    pub(super) fn created(&self) -> Option<Timestamp> {
        time(self.creation_timestamp.as_ref()?)
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
    name.filter(|name| !name.is_empty()).map(|name| value(&name).into_owned())
}

/// `infrastructureRef`: `apiVersion` in v1beta1, `apiGroup` in v1beta2.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Reference<'a> {
    #[serde(borrow)]
    pub(super) api_version: Option<Text<'a>>,
    pub(super) api_group: Option<Text<'a>>,
    #[serde(default)]
    pub(super) kind: Text<'a>,
    #[serde(default)]
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
    pub(super) status: Text<'a>,
    #[serde(default)]
    pub(super) reason: Text<'a>,
    #[serde(default)]
    pub(super) message: Text<'a>,
    last_transition_time: Option<Text<'a>>,
}

impl Condition<'_> {
    /// Returns the time of the last transition, if it can be parsed.
    pub(super) fn since(&self) -> Option<Timestamp> {
        time(self.last_transition_time.as_ref()?)
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
    pub(super) failure_reason: Option<Text<'a>>,
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
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum Amount<'a> {
    #[serde(borrow)]
    Text(Text<'a>),
    Other(Value),
}

impl Amount<'_> {
    /// Returns the value as text, within the length limit.
    pub(super) fn text(&self) -> Cow<'_, str> {
        match self {
            Self::Text(text) => value(text),
            Self::Other(other) => value(&other.to_string()).into_owned().into(),
        }
    }
}

// Size limits for the texts that are kept of an object. An API server accepts objects of a mebibyte and more, and
// whoever may write some of them must not be able to fill the memory.

/// The maximum length of an annotation, label or field that is read, in bytes.
pub const LONGEST_VALUE: usize = 16 * 1024;
/// The number of bytes of a message that are read; the rest is cut.
pub const LONGEST_MESSAGE: usize = 4 * 1024;
/// The maximum length of a value of the annotation delete-machine that this program may have written, in bytes.
pub(crate) const LONGEST_MARK: usize = 256;

/// The maximum number of bytes of labels, annotations, taints and amounts that are kept of one object.
pub const MOST_KEPT: usize = 32 * 1024;
/// The maximum number of bytes of names that are kept of a list: the instances of a MachinePool, or the workers of a
/// topology.
pub const MOST_LISTED: usize = 512 * 1024;
/// The estimated memory of an entry besides its texts, in bytes: in its map, and in values derived from it.
const ENTRY: usize = 128;

/// The estimated memory of a text in a list or map besides its bytes: the informers' limit is for large fleets, and
/// mustn't count more than there is.
const LISTED: usize = 32;

/// The begin of the year 0000.
const FIRST_YEAR: Timestamp = Timestamp::constant(-62_167_219_200, 0);

/// Returns a time in the form of RFC 3339, whose years have four digits. jiff also reads signed ones of six, and the
/// earliest of those fail a debug assertion there.
pub fn time(text: &str) -> Option<Timestamp> {
    let is_signed = !text.starts_with(|first: char| first.is_ascii_digit());
    let time = if is_signed { None } else { text.parse().ok() };
    time.filter(|time| *time >= FIRST_YEAR)
}

/// The end of the placeholder for a value that is too long.
const UNREAD: &str = "bytes; no more than 16384 are read)";

/// Returns the value, or a placeholder that states its length if it is too long. No rule accepts the placeholder as a
/// value, and the reported problem quotes it.
pub(super) fn value(text: &str) -> Cow<'_, str> {
    if text.len() <= LONGEST_VALUE { text.into() } else { format!("({} {UNREAD}", text.len()).into() }
}

/// Returns true if a stored value is the placeholder for one that was too long.
pub fn is_unread(value: &str) -> bool {
    value.starts_with('(') && value.ends_with(UNREAD)
}

/// The total size of several texts of an object. Each text has its own limit, and their total needs one as well: an
/// object can have thousands of them.
pub(super) struct TotalSize {
    bytes: usize,
    most: usize,
}

impl TotalSize {
    /// Creates an empty total with a limit in bytes.
    pub(super) fn at_most(most: usize) -> Self {
        Self { bytes: 0, most }
    }

    /// Adds one entry with these texts.
    pub(super) fn add(&mut self, texts: impl IntoIterator<Item: AsRef<str>>) {
        self.bytes += ENTRY + texts.into_iter().map(|text| text.as_ref().len()).sum::<usize>();
    }

    /// Checks the limit.
    ///
    /// # Errors
    /// When the limit is exceeded; the message calls the texts `texts`.
    pub(super) fn check(&self, texts: &str) -> Result<(), String> {
        let Self { bytes, most } = self;
        if bytes <= most {
            return Ok(());
        }
        Err(format!(
            "{texts} have {bytes} bytes, {ENTRY} for each one included, and no more than {most} are kept of an object: \
             remove those that nobody needs"
        ))
    }
}

/// Returns the bytes of texts.
pub(super) fn bytes<'a>(texts: impl IntoIterator<Item = &'a ArcStr>) -> usize {
    texts.into_iter().map(ArcStr::len).sum()
}

/// Returns the bytes of texts in lists and maps.
pub(super) fn listed_bytes<'a>(texts: impl IntoIterator<Item = &'a ArcStr>) -> usize {
    texts.into_iter().map(|text| LISTED + text.len()).sum()
}

/// Returns the beginning of a message, cut between characters.
pub(super) fn message(text: &str) -> &str {
    let end = (0..=LONGEST_MESSAGE.min(text.len())).rev().find(|end| text.is_char_boundary(*end));
    end.and_then(|end| text.get(..end)).unwrap_or_default()
}

/// Returns a Machine's mark, or nothing if it is too long: then this program didn't write it.
pub(super) fn mark(text: &str) -> &str {
    if text.len() <= LONGEST_MARK { text } else { "" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_says_what_takes_its_place_and_a_message_is_cut_between_characters() {
        let beyond = value(&"1".repeat(LONGEST_VALUE + 1)).into_owned();
        assert_eq!(beyond, "(16385 bytes; no more than 16384 are read)");
        assert!(is_unread(&beyond) && UNREAD.contains(&LONGEST_VALUE.to_string()));
        let odd = "é".repeat(LONGEST_MESSAGE / 2);
        assert_eq!(message(&format!("e{odd}")).len(), LONGEST_MESSAGE - 1);
    }

    #[test]
    fn an_entry_counts_with_its_texts_and_more() {
        let mut kept = TotalSize::at_most(MOST_KEPT);
        kept.add(["key", "value"]);
        assert_eq!(kept.bytes, 8 + ENTRY);
        kept.add(["v".repeat(MOST_KEPT - 8 - 2 * ENTRY)]);
        assert_eq!((kept.bytes, kept.check("its labels")), (MOST_KEPT, Ok(())));
        kept.add([""]);
        let error = kept.check("its labels").unwrap_err();
        let said = "its labels have 32896 bytes, 128 for each one included, and no more than 32768";
        assert!(error.starts_with(said), "{error}");
    }
}
