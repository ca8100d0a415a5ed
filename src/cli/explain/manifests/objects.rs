//! The objects in the documents, including the items of lists, each with its position and identity. If an object
//! occurs twice, the last one counts, as when they are applied in order.

use std::collections::BTreeMap;

use anyhow::bail;
use rules::capi::{Meta, ObjectKey};
use serde_json::Value;

use super::{
    Place, Text,
    documents::{Broken, documents},
};

/// The content of all sources.
#[derive(Debug)]
pub(in crate::cli::explain) struct Manifests {
    namespace: String,
    pub(super) objects: BTreeMap<Identity, Object>,
    /// The content that is no object, with the reason, in words for people.
    pub(in crate::cli::explain) skipped: Vec<String>,
    /// Objects that occur twice, of which the first isn't used, in words for people.
    pub(in crate::cli::explain) warnings: Vec<String>,
    /// Documents that may have been meant as objects but can't be parsed.
    pub(in crate::cli::explain) broken: Vec<String>,
}

/// The identity of an object, which doesn't include the version of its group.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) struct Identity {
    pub(super) group: String,
    pub(super) kind: String,
    pub(super) key: ObjectKey,
}

/// An object of any kind.
#[derive(Debug)]
pub(super) struct Object {
    pub(super) place: Place,
    pub(super) meta: Meta,
    pub(super) value: Value,
}

impl Manifests {
    pub(super) fn new(namespace: &str) -> Self {
        Self {
            namespace: namespace.to_owned(),
            objects: BTreeMap::new(),
            skipped: Vec::new(),
            warnings: Vec::new(),
            broken: Vec::new(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.objects.is_empty() && self.broken.is_empty()
    }

    /// Adds the objects of a text.
    pub(super) fn add(&mut self, text: &Text) -> anyhow::Result<()> {
        let place = |line| Place { file: text.name.clone(), line, item: None };
        let Ok(utf8) = std::str::from_utf8(&text.bytes) else {
            return self.take_broken(text, &place(1), Broken { why: "it isn't UTF-8 text".into(), is_template: false });
        };
        for document in documents(utf8) {
            match document.value {
                Ok(value) => self.take(value, &place(document.line)),
                Err(broken) => self.take_broken(text, &place(document.line), broken)?,
            }
        }
        Ok(())
    }

    fn take_broken(&mut self, text: &Text, place: &Place, broken: Broken) -> anyhow::Result<()> {
        let Broken { why, is_template } = broken;
        match (text.is_named, is_template) {
            (true, _) => bail!("{place}: {why}: only in a directory is such a file skipped"),
            (false, true) => self.skipped.push(format!("{place}: {why}")),
            (false, false) => self.broken.push(format!("{place}: {why}")),
        }
        Ok(())
    }

    /// Adds an object, or the items of a list.
    fn take(&mut self, value: Value, place: &Place) {
        let kind = text(&value, "kind").map(str::to_owned);
        match (value, kind) {
            (Value::Object(mut list), Some(kind)) if kind.ends_with("List") && is_list(&list) => {
                // The items of kubectl's List name their kind; those of an API server's own list need not.
                let api_version = list.get("apiVersion").cloned();
                let item_kind = kind.strip_suffix("List").filter(|kind| !kind.is_empty());
                let Some(Value::Array(items)) = list.remove("items") else { return };
                for (number, mut item) in (1..).zip(items) {
                    if let (Some(object), Some(item_kind)) = (item.as_object_mut(), item_kind) {
                        object.entry("kind").or_insert_with(|| item_kind.into());
                        object.entry("apiVersion").or_insert_with(|| api_version.clone().unwrap_or_default());
                    }
                    self.take(item, &Place { item: Some(number), ..place.clone() });
                }
            }
            (value, _) => match self.identity(&value) {
                Ok(identity) => self.put(identity, value, place),
                Err(why) => self.skipped.push(format!("{place}: {why}")),
            },
        }
    }

    fn put(&mut self, identity: Identity, value: Value, place: &Place) {
        let metadata = |field: &str| value.pointer(&format!("/metadata/{field}")).and_then(Value::as_str);
        let meta = Meta {
            key: identity.key.clone(),
            uid: metadata("uid").unwrap_or_default().into(),
            resource_version: metadata("resourceVersion").unwrap_or_default().into(),
        };
        let shown = format!("{} {}", identity.kind, identity.key);
        if let Some(before) = self.objects.insert(identity, Object { place: place.clone(), meta, value }) {
            self.warnings.push(format!(
                "{shown} is there twice, in {} and {place}: the latter counts; remove one of them",
                before.place
            ));
        }
    }

    /// Returns the identity of an object, or the reason why it is none.
    fn identity(&self, value: &Value) -> Result<Identity, String> {
        let (Some(api_version), Some(kind)) = (text(value, "apiVersion"), text(value, "kind")) else {
            return Err("it isn't a Kubernetes object: it has no apiVersion and kind".to_owned());
        };
        let metadata = |field: &str| value.pointer(&format!("/metadata/{field}")).and_then(Value::as_str);
        let name = metadata("name").filter(|name| !name.is_empty());
        let name =
            name.ok_or_else(|| format!("{kind} ({api_version}) isn't an object of a cluster: it has no name"))?;
        let group = api_version.split_once('/').map_or("", |(group, _)| group);
        let is_node = group.is_empty() && kind == "Node";
        let namespace = metadata("namespace").filter(|namespace| !namespace.is_empty()).unwrap_or(&self.namespace);
        let key = if is_node { ObjectKey::cluster(name) } else { ObjectKey::new(namespace, name) };
        Ok(Identity { group: group.to_owned(), kind: kind.to_owned(), key })
    }
}

fn is_list(object: &serde_json::Map<String, Value>) -> bool {
    matches!(object.get("items"), Some(Value::Array(_) | Value::Null))
}

fn text<'a>(value: &'a Value, field: &str) -> Option<&'a str> {
    value.get(field).and_then(Value::as_str).filter(|text| !text.is_empty())
}
