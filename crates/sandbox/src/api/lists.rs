//! The lists of a kind that are merged by keys, for strategic merge patches and server-side apply. All other lists are
//! replaced as a whole.
//!
//! For core kinds the keys are those of core/v1, for the fields of the kinds supported here; for custom kinds they come
//! from the CRD's `x-kubernetes-list-type`.

use std::collections::HashMap;

use serde_json::Value;

/// The rule by which two versions of one list are merged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ListType {
    /// The items are objects, identified by the values of these keys.
    Map(Vec<String>),
    /// The items are plain values, each at most once.
    Set,
}

/// The lists of a kind that aren't replaced as a whole, by path. Items of lists are written `[]`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Lists {
    strategic: HashMap<String, ListType>,
    apply: HashMap<String, ListType>,
    replaced_maps: Vec<String>,
}

impl Lists {
    /// Returns the rule of a strategic merge patch for the list at `path`; `None` to replace it.
    #[must_use]
    pub(crate) fn strategic(&self, path: &str) -> Option<&ListType> {
        metadata(path).or_else(|| self.strategic.get(path))
    }

    /// Returns the rule of server-side apply for the list at `path`; `None` to replace it.
    #[must_use]
    pub fn apply(&self, path: &str) -> Option<&ListType> {
        metadata(path).or_else(|| self.apply.get(path))
    }

    /// Returns true if server-side apply replaces the map at `path` as a whole.
    #[must_use]
    pub(crate) fn is_atomic_map(&self, path: &str) -> bool {
        self.replaced_maps.iter().any(|atomic| atomic == path)
    }

    /// Returns the lists of a core kind.
    #[must_use]
    pub fn core(kind: &str) -> Self {
        let mut lists = Self::default();
        match kind {
            "Node" => {
                lists.both(".status.conditions", &["type"]);
                lists.both(".status.addresses", &["type"]);
                lists.set(".spec.podCIDRs");
            }
            "Pod" => lists.pod(".spec"),
            "Namespace" => lists.both(".status.conditions", &["type"]),
            "Service" => {
                lists.strategic.insert(".spec.ports".to_owned(), map(&["port"]));
                lists.apply.insert(".spec.ports".to_owned(), map(&["port", "protocol"]));
                lists.both(".status.conditions", &["type"]);
                lists.replaced_maps.push(".spec.selector".to_owned());
            }
            "ServiceAccount" => {
                lists.both(".secrets", &["name"]);
                lists.both(".imagePullSecrets", &["name"]);
            }
            _ => {}
        }
        lists
    }

    /// Returns the lists of a custom kind, by its schema.
    #[must_use]
    pub(crate) fn of_schema(schema: &Value) -> Self {
        let mut lists = Self::default();
        lists.read_schema("", schema);
        lists
    }

    fn read_schema(&mut self, path: &str, schema: &Value) {
        if let Some(properties) = schema.get("properties").and_then(Value::as_object) {
            for (name, property) in properties {
                self.read_schema(&format!("{path}.{name}"), property);
            }
        }
        if let Some(values) = schema.get("additionalProperties").filter(|values| values.is_object()) {
            self.read_schema(&format!("{path}.*"), values);
        }
        if schema.get("x-kubernetes-map-type").and_then(Value::as_str) == Some("atomic") {
            self.replaced_maps.push(path.to_owned());
        }
        let Some(items) = schema.get("items") else { return };
        match schema.get("x-kubernetes-list-type").and_then(Value::as_str) {
            Some("map") => {
                let keys = schema.get("x-kubernetes-list-map-keys").and_then(Value::as_array);
                let keys = keys.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect();
                self.apply.insert(path.to_owned(), ListType::Map(keys));
                self.read_schema(&format!("{path}[]"), items);
            }
            Some("set") => {
                self.apply.insert(path.to_owned(), ListType::Set);
            }
            Some(_) | None => {}
        }
    }

    fn both(&mut self, path: &str, keys: &[&str]) {
        self.strategic.insert(path.to_owned(), map(keys));
        self.apply.insert(path.to_owned(), map(keys));
    }

    fn set(&mut self, path: &str) {
        self.strategic.insert(path.to_owned(), ListType::Set);
        self.apply.insert(path.to_owned(), ListType::Set);
    }

    fn pod(&mut self, spec: &str) {
        for containers in ["containers", "initContainers", "ephemeralContainers"] {
            let path = format!("{spec}.{containers}");
            self.both(&path, &["name"]);
            self.both(&format!("{path}[].env"), &["name"]);
            self.both(&format!("{path}[].volumeMounts"), &["mountPath"]);
            self.both(&format!("{path}[].volumeDevices"), &["devicePath"]);
            self.strategic.insert(format!("{path}[].ports"), map(&["containerPort"]));
            self.apply.insert(format!("{path}[].ports"), map(&["containerPort", "protocol"]));
        }
        self.both(&format!("{spec}.volumes"), &["name"]);
        self.both(&format!("{spec}.imagePullSecrets"), &["name"]);
        self.both(&format!("{spec}.hostAliases"), &["ip"]);
        self.strategic.insert(format!("{spec}.topologySpreadConstraints"), map(&["topologyKey"]));
        self.apply.insert(format!("{spec}.topologySpreadConstraints"), map(&["topologyKey", "whenUnsatisfiable"]));
        self.both(".status.conditions", &["type"]);
        self.both(".status.podIPs", &["ip"]);
        self.replaced_maps.push(format!("{spec}.nodeSelector"));
    }
}

fn map(keys: &[&str]) -> ListType {
    ListType::Map(keys.iter().map(|&key| key.to_owned()).collect())
}

/// Returns the rule of a list that all kinds have in common.
fn metadata(path: &str) -> Option<&'static ListType> {
    use std::sync::LazyLock;
    static OWNERS: LazyLock<ListType> = LazyLock::new(|| map(&["uid"]));
    match path {
        ".metadata.ownerReferences" => Some(&OWNERS),
        ".metadata.finalizers" => Some(&ListType::Set),
        _ => None,
    }
}
