//! CustomResourceDefinitions: the kind that each defines, and the status that reports it as established.

use serde_json::{Value, json};

use super::{
    core_kinds::EXTENSIONS,
    kind::{Column, KindSpec, Rules, ScalePaths, VersionSpec},
    object::text,
    refusal::FieldCause,
};

/// Returns true if the kind is CustomResourceDefinition.
pub(crate) fn is_definition(kind: &KindSpec) -> bool {
    kind.group == EXTENSIONS && kind.kind == "CustomResourceDefinition"
}

/// Returns the group and plural that a definition defines; `None` if the object isn't a definition.
pub(crate) fn defined_by(value: &Value) -> Option<(&str, &str)> {
    let is_one = value["kind"] == "CustomResourceDefinition"
        && value["apiVersion"].as_str().is_some_and(|version| version.starts_with(EXTENSIONS));
    if !is_one {
        return None;
    }
    Some((value["spec"]["group"].as_str()?, value["spec"]["names"]["plural"].as_str()?))
}

/// Returns the kind that a definition defines.
pub(crate) fn kind_of(definition: &Value) -> Option<KindSpec> {
    let spec = definition.get("spec")?;
    let names = spec.get("names")?;
    let kind = names["kind"].as_str()?;
    let name = |field: &str| names[field].as_str().map(str::to_owned);
    let mut stored = None;
    let mut versions: Vec<(bool, VersionSpec)> = Vec::new();
    for version in spec["versions"].as_array()? {
        if version["storage"] == true {
            stored = version["name"].as_str();
        }
        versions.push((version["storage"] == true, version_of(version)?));
    }
    versions.sort_by_key(|(_, version)| std::cmp::Reverse(priority(&version.name)));
    let storage = versions.iter().position(|(_, version)| Some(version.name.as_str()) == stored)?;
    Some(KindSpec {
        group: spec["group"].as_str()?.to_owned(),
        kind: kind.to_owned(),
        list_kind: name("listKind").unwrap_or_else(|| format!("{kind}List")),
        plural: name("plural")?,
        singular: name("singular").unwrap_or_else(|| kind.to_lowercase()),
        short_names: texts(&names["shortNames"]),
        categories: texts(&names["categories"]),
        namespaced: spec["scope"] == "Namespaced",
        selectable_fields: selectable(&spec["versions"]),
        versions: versions.into_iter().map(|(_, version)| version).collect(),
        storage,
        rules: Rules::custom(),
    })
}

/// Returns a sort key for versions: stable before beta before alpha, newer before older.
pub(crate) fn priority(version: &str) -> (bool, u8, u32, u32, std::cmp::Reverse<String>) {
    let parsed = (|| {
        let rest = version.strip_prefix('v')?;
        let digits = rest.len() - rest.trim_start_matches(|character: char| character.is_ascii_digit()).len();
        let major: u32 = rest.get(..digits)?.parse().ok()?;
        let (level, minor) = match rest.get(digits..)? {
            "" => (2, 0),
            rest => match (rest.strip_prefix("beta"), rest.strip_prefix("alpha")) {
                (Some(minor), _) => (1, minor.parse().ok()?),
                (None, Some(minor)) => (0, minor.parse().ok()?),
                (None, None) => return None,
            },
        };
        Some((level, major, minor))
    })();
    match parsed {
        Some((level, major, minor)) => (true, level, major, minor, std::cmp::Reverse(String::new())),
        None => (false, 0, 0, 0, std::cmp::Reverse(version.to_owned())),
    }
}

fn version_of(version: &Value) -> Option<VersionSpec> {
    let subresources = &version["subresources"];
    let path = |field: &str| subresources["scale"][field].as_str().map(str::to_owned);
    let scale = path("specReplicasPath").zip(path("statusReplicasPath")).map(|(spec_replicas, status_replicas)| {
        ScalePaths { spec_replicas, status_replicas, label_selector: path("labelSelectorPath") }
    });
    Some(VersionSpec {
        name: version["name"].as_str()?.to_owned(),
        served: version["served"] == true,
        status: subresources.get("status").is_some_and(|status| !status.is_null()),
        scale,
        columns: columns(&version["additionalPrinterColumns"]),
    })
}

fn columns(columns: &Value) -> Vec<Column> {
    let text = |column: &Value, field: &str| column[field].as_str().unwrap_or_default().to_owned();
    let columns: Vec<Column> = columns
        .as_array()
        .into_iter()
        .flatten()
        .map(|column| Column {
            name: text(column, "name"),
            kind: text(column, "type"),
            description: text(column, "description"),
            priority: column["priority"].as_i64().unwrap_or_default(),
            path: text(column, "jsonPath"),
        })
        .collect();
    if columns.is_empty() {
        return vec![Column { kind: "date".to_owned(), ..Column::text("Age", ".metadata.creationTimestamp") }];
    }
    columns
}

fn selectable(versions: &Value) -> Vec<String> {
    let versions = versions.as_array().into_iter().flatten();
    let fields = versions.flat_map(|version| version["selectableFields"].as_array().into_iter().flatten());
    let mut paths: Vec<String> = fields
        .filter_map(|field| field["jsonPath"].as_str())
        .map(|path| path.trim_start_matches('.').to_owned())
        .collect();
    paths.sort();
    paths.dedup();
    paths
}

fn texts(list: &Value) -> Vec<String> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

/// Fills in names that follow from others, and the status that reports the kind as established.
pub(crate) fn fill(definition: &mut Value, time: &str) {
    if !definition["spec"]["names"].is_object() || !definition["spec"]["versions"].is_array() {
        // The causes report the fault.
        return;
    }
    let kind = definition["spec"]["names"]["kind"].as_str().unwrap_or_default().to_owned();
    let names = &mut definition["spec"]["names"];
    if names["listKind"].is_null() {
        names["listKind"] = json!(format!("{kind}List"));
    }
    if names["singular"].is_null() {
        names["singular"] = json!(kind.to_lowercase());
    }
    let names = names.clone();
    if definition["spec"]["conversion"].is_null() {
        definition["spec"]["conversion"] = json!({"strategy": "None"});
    }
    let stored = definition["spec"]["versions"].as_array().into_iter().flatten();
    let stored: Vec<Value> =
        stored.filter(|version| version["storage"] == true).map(|version| version["name"].clone()).collect();
    if !definition["status"].is_object() {
        definition["status"] = json!({});
    }
    let status = &mut definition["status"];
    status["acceptedNames"] = names;
    if status["storedVersions"].as_array().is_none_or(Vec::is_empty) {
        status["storedVersions"] = json!(stored);
    }
    if status["conditions"].as_array().is_none_or(Vec::is_empty) {
        let condition = |kind: &str, reason: &str, message: &str| json!({"type": kind, "status": "True", "reason": reason, "message": message, "lastTransitionTime": time});
        status["conditions"] = json!([
            condition("NamesAccepted", "NoConflicts", "no conflicts found"),
            condition("Established", "InitialNamesAccepted", "the initial names have been accepted"),
        ]);
    }
}

/// Returns the faults of a definition.
pub(crate) fn causes(definition: &Value) -> Vec<FieldCause> {
    let spec = &definition["spec"];
    let mut causes = Vec::new();
    let required = [
        ("spec.group", &spec["group"]),
        ("spec.scope", &spec["scope"]),
        ("spec.names.plural", &spec["names"]["plural"]),
        ("spec.names.kind", &spec["names"]["kind"]),
    ];
    for (field, value) in required {
        if value.as_str().unwrap_or_default().is_empty() {
            causes.push(FieldCause::required(field, ""));
        }
    }
    let versions = spec["versions"].as_array().map(Vec::as_slice).unwrap_or_default();
    if versions.iter().filter(|version| version["storage"] == true).count() != 1 {
        let why = "must have exactly one version marked as storage version";
        causes.push(FieldCause::invalid("spec.versions", &spec["versions"].to_string(), why));
    }
    if versions.iter().any(|version| version["name"].as_str().unwrap_or_default().is_empty()) {
        causes.push(FieldCause::required("spec.versions.name", ""));
    }
    let expected = format!(
        "{}.{}",
        spec["names"]["plural"].as_str().unwrap_or_default(),
        spec["group"].as_str().unwrap_or_default()
    );
    let name = text(definition, "name");
    if causes.is_empty() && name != expected {
        let why = "must be spec.names.plural+\".\"+spec.group";
        causes.push(FieldCause::invalid("metadata.name", &format!("{name:?}"), why));
    }
    causes
}
