//! The source of a value in a template, and the values it overrode. Never hold a copy of an object's text here if it
//! can be shared with the object: a thousand groups hold these.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    fmt,
};

use crate::capi::InfrastructureRef;
use arcstr::ArcStr;
use serde::{Serialize, Serializer, ser::SerializeStruct as _};

use super::{GroupId, price::PriceEntry, remembered::Seen};

/// A value, its source, and the values it overrode. Values are serialized as text.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
#[serde(bound(serialize = "T: fmt::Display"))]
pub struct Sourced<T> {
    /// The value.
    #[serde(serialize_with = "text")]
    pub value: T,
    /// Its source.
    #[serde(flatten)]
    pub source: Source,
    /// The values of weaker sources, the weakest last. They may equal `value`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub overrode: Vec<Stated<T>>,
}

/// A value that a source states.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
#[serde(bound(serialize = "T: fmt::Display"))]
pub struct Stated<T> {
    /// The value.
    #[serde(serialize_with = "text")]
    pub value: T,
    /// The source that states it.
    #[serde(flatten)]
    pub source: Source,
}

fn text<S: Serializer>(value: &impl fmt::Display, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(value)
}

impl<T> Sourced<T> {
    /// Returns a value that overrode nothing.
    pub fn new(value: T, source: Source) -> Self {
        Self { value, source, overrode: Vec::new() }
    }

    /// Replaces the value by that of a stronger source.
    pub(crate) fn override_with(&mut self, value: T, source: Source) {
        let value = std::mem::replace(&mut self.value, value);
        let source = std::mem::replace(&mut self.source, source);
        self.overrode.insert(0, Stated { value, source });
    }

    /// Iterates over all sources of a value, the strongest first.
    pub fn sources(&self) -> impl Iterator<Item = &Source> {
        std::iter::once(&self.source).chain(self.overrode.iter().map(|stated| &stated.source))
    }
}

/// Values by name.
pub type SourcedMap<T> = BTreeMap<String, Sourced<T>>;

/// Adds the value of a source that is stronger than all before it.
pub(super) fn put<T>(map: &mut SourcedMap<T>, name: &str, value: T, source: Source) {
    match map.entry(name.to_owned()) {
        Entry::Vacant(place) => {
            place.insert(Sourced::new(value, source));
        }
        Entry::Occupied(mut place) => place.get_mut().override_with(value, source),
    }
}

/// The source of a value in a template.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Source {
    /// A default, since nothing states the value.
    Default,
    /// A flag of the server.
    Flag(&'static str),
    /// `status.capacity` of the infrastructure template.
    StatusCapacity(TemplateName),
    /// A field of `status.nodeInfo` of the infrastructure template.
    NodeInfo(TemplateName, &'static str),
    /// The annotation of the group with this key.
    Annotation(ArcStr),
    /// The group's `spec.template.metadata.labels`.
    TemplateMetadata,
    /// A field of the group's `spec.template.spec`.
    TemplateSpec(&'static str),
    /// The Node of this name, which the group has.
    RealNode(ArcStr),
    /// An observed Node, which may be deleted by now.
    Learned(Box<ObservedNode>),
    /// What is remembered of Nodes, of which this one was seen last.
    Remembered(Box<Seen>),
    /// The huge pages of the capacity, added to what this source states.
    HugePages(Option<Box<Source>>),
    /// An entry of the price file.
    PriceFile(PriceEntry),
}

/// Serialized as `source`, the kind, and `from`, the source in full.
impl Serialize for Source {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_struct("Source", 2)?;
        fields.serialize_field("source", self.as_str())?;
        fields.serialize_field("from", &self.to_string())?;
        fields.end()
    }
}

/// The kind and name of an infrastructure template, in the namespace of its group.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct TemplateName {
    /// Its kind.
    pub kind: ArcStr,
    /// Its name.
    pub name: ArcStr,
}

/// The Node from which a value was taken.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct ObservedNode {
    /// The Node's name.
    pub node: ArcStr,
    /// Its group, if that is another one.
    pub sibling: Option<GroupId>,
}

impl From<&InfrastructureRef> for TemplateName {
    fn from(reference: &InfrastructureRef) -> Self {
        Self { kind: reference.kind.clone(), name: reference.name.clone() }
    }
}

impl fmt::Display for TemplateName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.kind, self.name)
    }
}

impl Source {
    /// Returns the kind of source, as a field of outputs.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::Flag(_) => "flag",
            Self::StatusCapacity(_) => "status.capacity",
            Self::NodeInfo(..) => "status.nodeInfo",
            Self::Annotation(_) => "annotation",
            Self::TemplateMetadata => "spec.template.metadata",
            Self::TemplateSpec(_) => "spec.template.spec",
            Self::RealNode(_) => "real node",
            Self::Learned(_) => "learned",
            Self::Remembered(_) => "remembered",
            Self::HugePages(_) => "huge pages",
            Self::PriceFile(_) => "price file",
        }
    }

    /// Returns true for the capacity annotation with this suffix.
    pub(crate) fn is_annotation(&self, suffix: &str) -> bool {
        matches!(self, Self::Annotation(key) if key.split_once('/').is_some_and(|(_, name)| name == suffix))
    }
}

/// Writes the source in full, for people.
impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::Flag(flag) => f.write_str(flag),
            Self::StatusCapacity(template) => write!(f, "status.capacity of {template}"),
            Self::NodeInfo(template, field) => write!(f, "status.nodeInfo.{field} of {template}"),
            Self::Annotation(key) => write!(f, "annotation {key}"),
            Self::TemplateMetadata => f.write_str("spec.template.metadata.labels"),
            Self::TemplateSpec(field) => write!(f, "spec.template.spec.{field}"),
            Self::RealNode(node) => write!(f, "Node {node}"),
            Self::Learned(from) => write!(f, "learned from {from}"),
            Self::Remembered(seen) => write!(f, "remembered from {seen}"),
            Self::HugePages(None) => f.write_str("huge pages"),
            Self::HugePages(Some(rest)) => write!(f, "huge pages and {rest}"),
            Self::PriceFile(entry) => write!(f, "price file, {entry}"),
        }
    }
}

impl fmt::Display for ObservedNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Node {}", self.node)?;
        match &self.sibling {
            Some(group) => write!(f, " of {group}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn template() -> TemplateName {
        TemplateName { kind: "DevMachineTemplate".into(), name: "workers".into() }
    }

    #[test]
    fn overridden_values_are_kept_with_the_weakest_last() {
        let mut map = SourcedMap::new();
        put(&mut map, "cpu", 1, Source::Default);
        put(&mut map, "cpu", 2, Source::StatusCapacity(template()));
        put(&mut map, "cpu", 3, Source::Annotation("a.example/cpu".into()));
        let cpu = &map["cpu"];
        assert_eq!((cpu.value, cpu.source.as_str()), (3, "annotation"));
        let weaker: Vec<_> = cpu.overrode.iter().map(|stated| (stated.value, stated.source.as_str())).collect();
        assert_eq!(weaker, [(2, "status.capacity"), (1, "default")]);
        assert_eq!(cpu.sources().map(Source::as_str).collect::<Vec<_>>(), ["annotation", "status.capacity", "default"]);
    }
}
