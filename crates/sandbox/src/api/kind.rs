//! The description of a kind: its names, its versions, its subresources. It holds no objects.

use std::{borrow::Cow, fmt};

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
    #[must_use]
    pub fn api_version(&self) -> String {
        api_version(&self.group, &self.version)
    }
}

impl fmt::Display for Resource {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} of {}", self.plural, self.api_version())
    }
}

/// Returns the `apiVersion` of a group and version.
#[must_use]
pub(crate) fn api_version(group: &str, version: &str) -> String {
    if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") }
}

/// Splits an `apiVersion` into group and version.
#[must_use]
pub(crate) fn split_api_version(api_version: &str) -> (&str, &str) {
    api_version.split_once('/').unwrap_or(("", api_version))
}

/// The paths of the values of `/scale`, such as `.spec.replicas`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScalePaths {
    /// The desired number of replicas.
    pub spec_replicas: String,
    /// The observed number of replicas.
    pub status_replicas: String,
    /// The selector as text, if the kind has one.
    pub label_selector: Option<String>,
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
pub struct Column {
    /// The heading.
    pub name: String,
    /// `string`, `integer`, `date` …
    pub kind: String,
    /// The description of the column's values.
    pub description: String,
    /// The priority; columns above 0 are only shown by `-o wide`.
    pub priority: i64,
    /// The path of the value, of plain names as `.spec.replicas`.
    pub path: String,
}

impl Column {
    /// Creates a column of text that is always shown.
    #[must_use]
    pub fn text(name: &str, path: &str) -> Self {
        Self {
            name: name.to_owned(),
            kind: "string".to_owned(),
            description: String::new(),
            priority: 0,
            path: path.to_owned(),
        }
    }
}

/// A version under which a kind is served.
#[derive(Debug, Clone)]
pub struct VersionSpec {
    /// The version, such as `v1beta2`.
    pub name: String,
    /// True if clients can use it.
    pub served: bool,
    /// True if there is a `/status` subresource.
    pub status: bool,
    /// The paths of `/scale`, if there is such a subresource.
    pub scale: Option<ScalePaths>,
    /// The columns besides name and age.
    pub columns: Vec<Column>,
}

impl VersionSpec {
    /// Creates a served version with `/status` and without `/scale`.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self { name: name.to_owned(), served: true, status: true, scale: None, columns: Vec::new() }
    }
}

/// The API's treatment of objects where kinds differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools, reason = "each is a rule of its own that a kind has or lacks")]
pub struct Rules {
    /// True if changes are counted in `metadata.generation`.
    pub generation: bool,
    /// True if a create drops the status, which is written through its subresource.
    pub create_drops_status: bool,
    /// True if an update need not name a resourceVersion.
    pub unconditional_update: bool,
    /// True if an update of an object that doesn't exist creates it.
    pub create_on_update: bool,
    /// True if strategic merge patches are supported.
    pub strategic: bool,
    /// True if a delete is answered with the object rather than a Status.
    pub delete_returns_object: bool,
}

impl Rules {
    /// Returns the rules of kinds that a CRD defines.
    #[must_use]
    pub fn custom() -> Self {
        Self {
            generation: true,
            create_drops_status: true,
            unconditional_update: false,
            create_on_update: false,
            strategic: false,
            delete_returns_object: false,
        }
    }

    /// Returns the rules of most core kinds.
    #[must_use]
    pub fn core() -> Self {
        Self {
            generation: false,
            create_drops_status: false,
            unconditional_update: true,
            create_on_update: false,
            strategic: true,
            delete_returns_object: false,
        }
    }
}

/// The full description of a kind.
#[derive(Debug, Clone)]
pub struct KindSpec {
    /// The API group; empty for core kinds.
    pub group: String,
    /// The kind, such as `Machine`.
    pub kind: String,
    /// The kind of lists, such as `MachineList`.
    pub list_kind: String,
    /// The name in URLs, such as `machines`.
    pub plural: String,
    /// The name in commands, such as `machine`.
    pub singular: String,
    /// The short names for commands.
    pub short_names: Vec<String>,
    /// The categories for commands, such as `cluster-api`.
    pub categories: Vec<String>,
    /// True if its objects are namespaced.
    pub namespaced: bool,
    /// The versions, in order of preference. Objects are stored once and served in each version with only `apiVersion`
    /// rewritten: nothing is converted.
    pub versions: Vec<VersionSpec>,
    /// The index in `versions` of the version in which objects are stored.
    pub storage: usize,
    /// The fields besides name and namespace that field selectors may name.
    pub selectable_fields: Vec<String>,
    /// The rules in which kinds differ.
    pub rules: Rules,
}

impl KindSpec {
    /// Creates a namespaced custom kind with one served version that has `/status`; its plural is guessed.
    #[must_use]
    pub fn new(group: &str, version: &str, kind: &str) -> Self {
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
            rules: Rules::custom(),
        }
    }

    /// Makes the kind cluster-scoped.
    #[must_use]
    pub fn cluster_scoped(mut self) -> Self {
        self.namespaced = false;
        self
    }

    /// Adds a `/scale` at the usual paths to all versions.
    #[cfg(test)]
    #[must_use]
    pub(crate) fn with_scale(mut self) -> Self {
        for version in &mut self.versions {
            version.scale = Some(ScalePaths::default());
        }
        self
    }

    /// Adds a served version, which is like the first in all but its name.
    #[must_use]
    pub(crate) fn with_version(mut self, name: &str) -> Self {
        if let Some(first) = self.versions.first() {
            let version = VersionSpec { name: name.to_owned(), ..first.clone() };
            self.versions.push(version);
        }
        self
    }

    /// Returns the served version of this name.
    #[must_use]
    pub fn version(&self, name: &str) -> Option<&VersionSpec> {
        self.versions.iter().find(|version| version.name == name && version.served)
    }

    /// Returns the names of the served versions.
    pub(crate) fn served_versions(&self) -> impl Iterator<Item = &str> {
        self.versions.iter().filter(|version| version.served).map(|version| version.name.as_str())
    }

    /// Returns its resource in the version in which objects are stored.
    #[must_use]
    pub(crate) fn storage_resource(&self) -> Resource {
        let version = self.versions.get(self.storage).map_or_else(String::new, |version| version.name.clone());
        Resource::new(self.group.clone(), version, self.plural.clone())
    }

    /// Returns `plural.group`, or only the plural in the core group, as messages and CRDs name the kind.
    #[must_use]
    pub(crate) fn qualified(&self) -> String {
        if self.group.is_empty() { self.plural.clone() } else { format!("{}.{}", self.plural, self.group) }
    }
}

/// Returns the most likely plural of a kind: lower case, with the English ending.
#[must_use]
pub(crate) fn guess_plural(kind: &str) -> String {
    let singular = kind.to_lowercase();
    let vowel_before_y = ["ay", "ey", "iy", "oy", "uy"].iter().any(|ending| singular.ends_with(ending));
    match singular.as_bytes() {
        [.., b's' | b'x' | b'z'] | [.., b'c' | b's', b'h'] => format!("{singular}es"),
        [stem @ .., b'y'] if !vowel_before_y => format!("{}ies", String::from_utf8_lossy(stem)),
        _ => format!("{singular}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case("Machine", "machines")]
    #[case("DevMachineTemplate", "devmachinetemplates")]
    #[case("NetworkPolicy", "networkpolicies")]
    #[case("Gateway", "gateways")]
    #[case("Ingress", "ingresses")]
    #[case("Proxy", "proxies")]
    #[case("Box", "boxes")]
    #[case("Batch", "batches")]
    fn the_plural_of_a_kind_is_guessed_as_english_forms_it(#[case] kind: &str, #[case] plural: &str) {
        assert_eq!(guess_plural(kind), plural);
    }
}
