//! The description of a kind: its names, its versions, its subresources; and CustomResourceDefinitions, each of which
//! defines one.

use std::{borrow::Cow, fmt};

use serde_json::{Value, json};

/// A served version of a kind, named by group, version and plural as in URLs.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Resource {
    /// The API group; empty for core kinds.
    pub group: Cow<'static, str>,
    /// The version, such as `v1beta2`.
    pub version: Cow<'static, str>,
    /// The plural in lower case, such as `machines`.
    pub plural: Cow<'static, str>,
}

impl Resource {
    /// Creates a resource of a named group.
    pub fn new(
        group: impl Into<Cow<'static, str>>,
        version: impl Into<Cow<'static, str>>,
        plural: impl Into<Cow<'static, str>>,
    ) -> Self {
        Self { group: group.into(), version: version.into(), plural: plural.into() }
    }

    /// Creates a resource of the core group in v1.
    pub fn core(plural: impl Into<Cow<'static, str>>) -> Self {
        Self::new("", "v1", plural)
    }

    /// Returns the `apiVersion` of objects: `group/version`, or only the version in the core group.
    pub fn api_version(&self) -> String {
        api_version(&self.group, &self.version)
    }
}

impl fmt::Display for Resource {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} of {}", self.plural, self.api_version())
    }
}

pub(crate) fn api_version(group: &str, version: &str) -> String {
    if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") }
}

pub(crate) fn split_api_version(api_version: &str) -> (&str, &str) {
    api_version.split_once('/').unwrap_or(("", api_version))
}

/// The paths of the values of `/scale`, such as `.spec.replicas`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ScalePaths {
    /// The desired number of replicas.
    pub(crate) spec_replicas: String,
    /// The observed number of replicas.
    pub(crate) status_replicas: String,
    /// The selector as text, if the kind has one.
    pub(crate) label_selector: Option<String>,
}

impl Default for ScalePaths {
    fn default() -> Self {
        Self {
            spec_replicas: ".spec.replicas".to_owned(),
            status_replicas: ".status.replicas".to_owned(),
            label_selector: Some(".status.selector".to_owned()),
        }
    }
}

/// A column of a table, as `additionalPrinterColumns` describe it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Column {
    /// The heading.
    pub(crate) name: String,
    /// `string`, `integer`, `date` …
    pub(crate) kind: String,
    /// The description of the column's values.
    pub(crate) description: String,
    /// The priority; columns above 0 are only shown by `-o wide`.
    pub(crate) priority: i64,
    /// The path of the value, of plain names as `.spec.replicas`.
    pub(crate) path: String,
}

impl Column {
    /// Creates a column of text that is always shown.
    pub(crate) fn text(name: &str, path: &str) -> Self {
        Self {
            name: name.to_owned(),
            kind: "string".to_owned(),
            description: String::new(),
            priority: 0,
            path: path.to_owned(),
        }
    }
}

#[derive(Debug, Clone)]
pub(crate) struct VersionSpec {
    /// The version, such as `v1beta2`.
    pub(crate) name: String,
    /// True if clients can use it.
    pub(crate) served: bool,
    /// True if there is a `/status` subresource.
    pub(crate) status: bool,
    /// The paths of `/scale`, if there is such a subresource.
    pub(crate) scale: Option<ScalePaths>,
    /// The columns besides name and age.
    pub(crate) columns: Vec<Column>,
}

impl VersionSpec {
    /// Creates a served version with `/status` and without `/scale`.
    pub(crate) fn new(name: &str) -> Self {
        Self { name: name.to_owned(), served: true, status: true, scale: None, columns: Vec::new() }
    }
}

/// The API's treatment of objects where kinds differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools, reason = "each is a rule of its own that a kind has or lacks")]
pub(crate) struct Rules {
    /// True if changes are counted in `metadata.generation`.
    pub(crate) generation: bool,
    /// True if a create drops the status, which is written through its subresource.
    pub(crate) create_drops_status: bool,
    /// True if an update need not name a resourceVersion.
    pub(crate) unconditional_update: bool,
    /// True if an update of an object that doesn't exist creates it.
    pub(crate) create_on_update: bool,
    /// True if strategic merge patches are supported.
    pub(crate) strategic: bool,
    /// True if a delete is answered with the object rather than a Status.
    pub(crate) delete_returns_object: bool,
}

impl Rules {
    /// The rules of kinds that a CRD defines.
    pub(crate) const CUSTOM: Self = Self {
        generation: true,
        create_drops_status: true,
        unconditional_update: false,
        create_on_update: false,
        strategic: false,
        delete_returns_object: false,
    };

    /// The rules of most core kinds.
    pub(crate) const CORE: Self = Self {
        generation: false,
        create_drops_status: false,
        unconditional_update: true,
        create_on_update: false,
        strategic: true,
        delete_returns_object: false,
    };
}

#[derive(Debug, Clone)]
pub(crate) struct KindSpec {
    /// The API group; empty for core kinds.
    pub(crate) group: String,
    /// The kind, such as `Machine`.
    pub(crate) kind: String,
    /// The kind of lists, such as `MachineList`.
    pub(crate) list_kind: String,
    /// The name in URLs, such as `machines`.
    pub(crate) plural: String,
    /// The name in commands, such as `machine`.
    pub(crate) singular: String,
    pub(crate) short_names: Vec<String>,
    /// The categories for commands, such as `cluster-api`.
    pub(crate) categories: Vec<String>,
    pub(crate) namespaced: bool,
    /// The versions, in order of preference. Objects are stored once and served in each version with only `apiVersion`
    /// rewritten: nothing is converted.
    pub(crate) versions: Vec<VersionSpec>,
    /// The index in `versions` of the version in which objects are stored.
    pub(crate) storage: usize,
    /// The fields besides name and namespace that field selectors may name.
    pub(crate) selectable_fields: Vec<String>,
    pub(crate) rules: Rules,
}

impl KindSpec {
    /// Creates a namespaced custom kind with one served version that has `/status`; its plural is guessed.
    pub(crate) fn new(group: &str, version: &str, kind: &str) -> Self {
        Self {
            group: group.to_owned(),
            kind: kind.to_owned(),
            list_kind: format!("{kind}List"),
            plural: guess_plural(kind),
            singular: kind.to_lowercase(),
            short_names: Vec::new(),
            categories: Vec::new(),
            namespaced: true,
            versions: vec![VersionSpec::new(version)],
            storage: 0,
            selectable_fields: Vec::new(),
            rules: Rules::CUSTOM,
        }
    }

    /// Adds a `/scale` at the usual paths to all versions.
    #[cfg(test)]
    pub(crate) fn with_scale(mut self) -> Self {
        for version in &mut self.versions {
            version.scale = Some(ScalePaths::default());
        }
        self
    }

    /// Adds a served version, which is like the first in all but its name.
    pub(crate) fn with_version(mut self, name: &str) -> Self {
        if let Some(first) = self.versions.first() {
            let version = VersionSpec { name: name.to_owned(), ..first.clone() };
            self.versions.push(version);
        }
        self
    }

    pub(crate) fn version(&self, name: &str) -> Option<&VersionSpec> {
        self.versions.iter().find(|version| version.name == name && version.served)
    }

    pub(crate) fn served_versions(&self) -> impl Iterator<Item = &str> {
        self.versions.iter().filter(|version| version.served).map(|version| version.name.as_str())
    }

    /// Returns its resource in the version in which objects are stored.
    pub(crate) fn storage_resource(&self) -> Resource {
        let version = self.versions.get(self.storage).map_or_else(String::new, |version| version.name.clone());
        Resource::new(self.group.clone(), version, self.plural.clone())
    }

    /// Returns `plural.group`, or only the plural in the core group, as messages and CRDs name the kind.
    pub(crate) fn qualified(&self) -> String {
        if self.group.is_empty() { self.plural.clone() } else { format!("{}.{}", self.plural, self.group) }
    }
}

/// Returns the most likely plural of a kind: lower case, with the English ending.
pub(crate) fn guess_plural(kind: &str) -> String {
    let singular = kind.to_lowercase();
    let vowel_before_y = ["ay", "ey", "iy", "oy", "uy"].iter().any(|ending| singular.ends_with(ending));
    match singular.as_bytes() {
        [.., b's' | b'x' | b'z'] | [.., b'c' | b's', b'h'] => format!("{singular}es"),
        [stem @ .., b'y'] if !vowel_before_y => format!("{}ies", String::from_utf8_lossy(stem)),
        _ => format!("{singular}s"),
    }
}

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
        rules: Rules::CUSTOM,
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
pub(crate) fn fill_definition(definition: &mut Value, time: &str) {
    if !definition["spec"]["names"].is_object() || !definition["spec"]["versions"].is_array() {
        // Such a definition defines nothing.
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

pub(crate) const EXTENSIONS: &str = "apiextensions.k8s.io";
