//! The field managers of objects: `metadata.managedFields`, updated with each write.

use serde_json::{Value, json};

use super::fields::FieldSet;

/// The manager of a write, and the part of the object that it writes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Writer<'w> {
    pub(crate) manager: &'w str,
    /// `status` or `scale`; empty for the object itself.
    pub(crate) subresource: &'w str,
    pub(crate) api_version: &'w str,
    /// The time in the API's format.
    pub(crate) time: &'w str,
}

/// The operation of all writes here; a loaded object may have fields that were applied.
const UPDATE: &str = "Update";

/// The entries of an object's `managedFields`.
#[derive(Debug, Clone, Default)]
pub(crate) struct Managers(Vec<Entry>);

#[derive(Debug, Clone)]
struct Entry {
    manager: String,
    operation: String,
    subresource: String,
    api_version: String,
    time: Value,
    fields: FieldSet,
}

impl Managers {
    pub(crate) fn of(object: &Value) -> Self {
        let list = object["metadata"]["managedFields"].as_array();
        Self(list.into_iter().flatten().map(Entry::parse).collect())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Writes the entries into the object.
    pub(crate) fn store(self, object: &mut Value) {
        let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) else { return };
        match self.into_value() {
            None => metadata.remove("managedFields"),
            Some(list) => metadata.insert("managedFields".to_owned(), list),
        };
    }

    /// Returns the value of the field; `None` if nothing is managed.
    pub(crate) fn into_value(self) -> Option<Value> {
        let list: Vec<Value> =
            self.0.into_iter().filter(|entry| !entry.fields.is_empty()).map(Entry::into_value).collect();
        (!list.is_empty()).then_some(Value::Array(list))
    }

    /// Records that the writer has changed an object from `old` to `new`.
    pub(crate) fn update(&mut self, writer: Writer<'_>, old: &Value, new: &Value, is_core: bool) {
        let changed = FieldSet::changed(old, new, is_core);
        let gone = FieldSet::of(old, is_core).without(&FieldSet::of(new, is_core));
        self.drop_fields(&gone, |_| true);
        if changed.is_empty() {
            return;
        }
        self.drop_fields(&changed, |entry| !entry.is_of(writer));
        match self.0.iter_mut().find(|entry| entry.is_of(writer)) {
            Some(entry) => {
                entry.fields.add(&changed);
                entry.time = json!(writer.time);
            }
            None => self.0.push(Entry::new(writer, changed)),
        }
    }

    fn drop_fields(&mut self, fields: &FieldSet, of: impl Fn(&Entry) -> bool) {
        for entry in self.0.iter_mut().filter(|entry| of(entry)) {
            entry.fields = entry.fields.without(fields);
        }
    }
}

impl Entry {
    fn new(writer: Writer<'_>, fields: FieldSet) -> Self {
        Self {
            manager: writer.manager.to_owned(),
            operation: UPDATE.to_owned(),
            subresource: writer.subresource.to_owned(),
            api_version: writer.api_version.to_owned(),
            time: json!(writer.time),
            fields,
        }
    }

    fn parse(entry: &Value) -> Self {
        let text = |field: &str| entry[field].as_str().unwrap_or_default().to_owned();
        Self {
            manager: text("manager"),
            operation: text("operation"),
            subresource: text("subresource"),
            api_version: text("apiVersion"),
            time: entry["time"].clone(),
            fields: FieldSet::parse(&entry["fieldsV1"]),
        }
    }

    fn into_value(self) -> Value {
        let mut entry = json!({
            "manager": self.manager,
            "operation": self.operation,
            "apiVersion": self.api_version,
            "time": self.time,
            "fieldsType": "FieldsV1",
            "fieldsV1": self.fields.to_value(),
        });
        if !self.subresource.is_empty() {
            entry["subresource"] = json!(self.subresource);
        }
        entry
    }

    fn is_of(&self, writer: Writer<'_>) -> bool {
        self.manager == writer.manager && self.operation == UPDATE && self.subresource == writer.subresource
    }
}
