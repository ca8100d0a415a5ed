//! Tables, in which objects are rows of cells that commands show to people.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{answer::list_metadata, route::Query};
use crate::api::{Column, EVENT_OBJECT, NODE_ADDRESS, NODE_ROLES, NODE_STATUS, Page, Target, at};

/// The type of an age column in tables of core kinds, where it is shown as text.
const AGE: &str = "age";

/// The part of each object that a row contains.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Include {
    Nothing,
    Metadata,
    Object,
}

impl Include {
    /// Reads the parameter `includeObject`.
    pub(super) fn of(query: &Query) -> Self {
        match query.get("includeObject") {
            Some("None") => Self::Nothing,
            Some("Object") => Self::Object,
            Some(_) | None => Self::Metadata,
        }
    }
}

pub(super) fn of_page(page: &Page, include: Include, now: Timestamp) -> Value {
    let mut table = table(&page.target, page.objects.iter().map(|object| &**object.value()), include, now);
    table["metadata"] = list_metadata(page);
    table
}

pub(super) fn of_one(target: &Target, object: &Value, include: Include, now: Timestamp) -> Value {
    let mut table = table(target, [object].into_iter(), include, now);
    table["metadata"] = json!({"resourceVersion": object["metadata"]["resourceVersion"]});
    table
}

fn table<'o>(target: &Target, objects: impl Iterator<Item = &'o Value>, include: Include, now: Timestamp) -> Value {
    let columns = columns(target);
    let mut table = headings(&columns);
    table["rows"] = objects.map(|object| row(target, &columns, object, include, now)).collect();
    table
}

fn columns(target: &Target) -> Vec<Column> {
    let mut columns = vec![Column { kind: "string".to_owned(), ..Column::text("Name", ".metadata.name") }];
    columns.extend(target.version.columns.iter().cloned());
    let age = Column { kind: AGE.to_owned(), ..Column::text("Age", ".metadata.creationTimestamp") };
    if target.spec.rules.strategic && target.spec.kind != "CustomResourceDefinition" {
        columns.push(age);
    }
    columns
}

fn headings(columns: &[Column]) -> Value {
    let headings: Vec<Value> = columns
        .iter()
        .map(|column| {
            json!({
                "name": column.name,
                "type": if column.kind == AGE { "string" } else { column.kind.as_str() },
                "format": if column.name == "Name" { "name" } else { "" },
                "description": column.description,
                "priority": column.priority,
            })
        })
        .collect();
    json!({"kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": {}, "columnDefinitions": headings})
}

fn row(target: &Target, columns: &[Column], object: &Value, include: Include, now: Timestamp) -> Value {
    let cells: Vec<Value> = columns.iter().map(|column| cell(object, column, now)).collect();
    let object = match include {
        Include::Nothing => return json!({"cells": cells}),
        Include::Metadata => metadata_of(object),
        Include::Object => {
            let mut object = object.clone();
            object["apiVersion"] = json!(target.api_version());
            object
        }
    };
    json!({"cells": cells, "object": object})
}

fn cell(object: &Value, column: &Column, now: Timestamp) -> Value {
    match column.path.as_str() {
        NODE_STATUS => json!(node_status(object)),
        NODE_ROLES => json!(node_roles(object)),
        EVENT_OBJECT => json!(event_object(object)),
        path => match (find(object, path), column.kind.as_str()) {
            (Some(Value::String(time)), "date" | AGE) => json!(age(time, now)),
            (Some(Value::Number(number)), "integer" | "number") => json!(number),
            (Some(Value::Bool(flag)), "boolean") => json!(flag),
            (Some(Value::String(text)), _) => json!(text),
            // Core kinds show an absent value; custom ones don't.
            (Some(Value::Null) | None, _) if is_core(object) => json!("<none>"),
            (Some(Value::Null) | None, _) => Value::Null,
            (Some(other), _) => json!(other.to_string()),
        },
    }
}

fn find<'o>(object: &'o Value, path: &str) -> Option<&'o Value> {
    match path.strip_prefix(NODE_ADDRESS) {
        Some(of) => of_type(&object["status"]["addresses"], of)?.get("address"),
        None => at(object, path),
    }
}

fn of_type<'o>(list: &'o Value, of: &str) -> Option<&'o Value> {
    list.as_array()?.iter().find(|item| item["type"] == of)
}

fn is_core(object: &Value) -> bool {
    object["apiVersion"] == "v1"
}

fn node_status(node: &Value) -> String {
    let ready = of_type(&node["status"]["conditions"], "Ready");
    let mut status = match ready.and_then(|ready| ready["status"].as_str()) {
        Some("True") => "Ready",
        Some(_) => "NotReady",
        None => "Unknown",
    }
    .to_owned();
    if node["spec"]["unschedulable"] == true {
        status.push_str(",SchedulingDisabled");
    }
    status
}

fn node_roles(node: &Value) -> String {
    let labels = node["metadata"]["labels"].as_object().into_iter().flatten();
    let roles: Vec<&str> = labels.filter_map(|(key, _)| key.strip_prefix("node-role.kubernetes.io/")).collect();
    if roles.is_empty() { "<none>".to_owned() } else { roles.join(",") }
}

/// Formats the object of an Event as `gear/a`. The core form and that of events.k8s.io use different fields.
fn event_object(event: &Value) -> String {
    let about = ["involvedObject", "regarding"].into_iter().find_map(|field| event.get(field));
    let part = |name: &str| about.and_then(|about| about[name].as_str()).unwrap_or_default();
    format!("{}/{}", part("kind").to_lowercase(), part("name"))
}

/// Returns the time since `time` for people, in two units at most.
fn age(time: &str, now: Timestamp) -> String {
    let Ok(time) = time.parse::<Timestamp>() else { return "<unknown>".to_owned() };
    let seconds = now.duration_since(time).as_secs();
    let units = |big: i64, big_name: &str, small: i64, small_name: &str, most: i64| {
        let (count, rest) = (seconds / big, seconds % big / small);
        if rest == 0 || count >= most {
            format!("{count}{big_name}")
        } else {
            format!("{count}{big_name}{rest}{small_name}")
        }
    };
    match seconds {
        ..0 => "<invalid>".to_owned(),
        0..120 => format!("{seconds}s"),
        120..10_800 => units(60, "m", 1, "s", 10),
        10_800..172_800 => units(3_600, "h", 60, "m", 8),
        172_800..63_072_000 => units(86_400, "d", 3_600, "h", 8),
        63_072_000.. => units(31_536_000, "y", 86_400, "d", 8),
    }
}

pub(super) fn metadata_of(object: &Value) -> Value {
    json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": object["metadata"]})
}

/// Returns only the metadata of a list's objects.
pub(super) fn metadata_of_page(page: &Page) -> Value {
    let items: Vec<Value> = page.objects.iter().map(|object| metadata_of(object.value())).collect();
    json!({
        "kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1", "metadata": list_metadata(page), "items": items,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case(0, "0s")]
    #[case(119, "119s")]
    #[case(120, "2m")]
    #[case(150, "2m30s")]
    #[case(3_660, "61m")]
    #[case(10_860, "3h1m")]
    #[case(90_000, "25h")]
    #[case(180_000, "2d2h")]
    #[case(864_000, "10d")]
    #[case(-1, "<invalid>")]
    fn ages_are_short(#[case] seconds: i64, #[case] expected: &str) {
        assert_eq!(age("1970-01-01T00:00:00Z", Timestamp::from_second(seconds).unwrap()), expected);
    }
}
