//! Loading of manifests: objects as a cluster returns them, or as people write them. Their status, uid, times and
//! owners are kept, so that a cluster can be restored from another one's objects.

use std::{
    collections::HashMap,
    ffi::OsStr,
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::{Context as _, bail, ensure};
use serde::Deserialize as _;
use serde_json::{Value, json};

use super::{
    Api, KindSpec, Refusal, Resource, Target, collect, core_kinds,
    kind::{self, split_api_version},
    managed::{FieldSet, Managers},
    object::{self, ObjectKey, SharedFields, text},
    store::{Place, Store},
    write::{self, Request},
};

impl Api {
    /// Loads a YAML text of any number of documents: first CustomResourceDefinitions, then namespaces, then everything
    /// else. Returns the number of objects. An unknown kind is defined by its first object: the plural is guessed, and
    /// its objects are namespaced if the first one has a namespace. An object that exists is replaced.
    pub fn load(&self, yaml: &str) -> anyhow::Result<usize> {
        self.load_values(manifests_in(yaml)?)
    }

    /// Loads objects and lists of objects.
    pub fn load_values(&self, documents: Vec<Value>) -> anyhow::Result<usize> {
        let mut objects = Vec::new();
        for document in documents {
            flatten(document, &mut objects);
        }
        for (at, object) in objects.iter().enumerate() {
            let missing = ["apiVersion", "kind"].into_iter().find(|field| !object[field].is_string());
            let missing = missing.or_else(|| text(object, "name").is_empty().then_some("metadata.name"));
            if let Some(missing) = missing {
                bail!("object {} of the manifests is no Kubernetes object: it needs {missing}", at + 1);
            }
        }
        let count = objects.len();
        // The definitions come first, then namespaces, then the rest.
        objects.sort_by_key(|object| match object["kind"].as_str() {
            Some("CustomResourceDefinition") => 0,
            Some("Namespace") => 1,
            Some(_) | None => 2,
        });
        link_owners(&mut objects, str::is_empty);
        let request = self.request();
        let mut store = self.shared.store.write();
        let loaded = Loader { store: &mut store, request: &request, latest: None, shared: HashMap::new() }.all(objects);
        self.publish(store);
        loaded.map(|()| count)
    }
}

/// A load in progress, with the values that its objects share.
struct Loader<'a> {
    store: &'a mut Store,
    request: &'a Request,
    latest: Option<Latest>,
    /// The `managedFields` of loaded objects, by kind, version and shape.
    shared: HashMap<Vec<u8>, Option<Arc<SharedFields>>>,
}

struct Latest {
    api_version: String,
    kind: String,
    target: Arc<Target>,
}

impl Loader<'_> {
    fn all(mut self, objects: Vec<Value>) -> anyhow::Result<()> {
        for object in objects {
            let what = format!("{} {}", object["kind"].as_str().unwrap_or_default(), text(&object, "name"));
            self.one(object).context(what)?;
        }
        Ok(())
    }

    fn one(&mut self, mut value: Value) -> Result<(), Refusal> {
        self.ensure_namespace(text(&value, "namespace"));
        object::check_types(&mut value)?;
        let target = self.target_of(&value)?;
        self.complete(&target, &mut value)?;
        let fields =
            if value["metadata"].get("managedFields").is_none() { self.managed_fields(&target, &value) } else { None };
        value["apiVersion"] = json!(target.storage_api_version());
        core_kinds::fill(&target.spec, &mut value, &self.request.time);
        let causes = object::causes(&target.spec, &value);
        if !causes.is_empty() {
            return Err(Refusal::invalid(&target.spec, text(&value, "name"), &causes));
        }
        let object = self.store.load(target.id, value, fields).ok_or_else(Refusal::no_such_resource)?;
        if kind::is_definition(&target.spec) {
            collect::after_put(self.store, &target, &object);
            self.latest = None;
        }
        collect::settle(self.store, &self.request.time);
        Ok(())
    }

    fn ensure_namespace(&mut self, name: &str) {
        if name.is_empty() {
            return;
        }
        let Some(kind) = self.store.find("", "namespaces") else { return };
        if self.store.get(&Place { kind, key: ObjectKey::new("", name) }).is_some() {
            return;
        }
        if let Some(target) = Target::stored(self.store, kind) {
            // A valid name always succeeds.
            let _ = write::create(self.store, &target, "", json!({"metadata": {"name": name}}), self.request);
        }
    }

    fn target_of(&mut self, value: &Value) -> Result<Arc<Target>, Refusal> {
        let named = |field: &str| value[field].as_str().unwrap_or_default();
        let (api_version, kind) = (named("apiVersion"), named("kind"));
        if let Some(latest) = &self.latest
            && (latest.api_version.as_str(), latest.kind.as_str()) == (api_version, kind)
        {
            return Ok(Arc::clone(&latest.target));
        }
        let target = Arc::new(target_of(self.store, value)?);
        let (api_version, kind) = (api_version.to_owned(), kind.to_owned());
        self.latest = Some(Latest { api_version, kind, target: Arc::clone(&target) });
        Ok(target)
    }

    /// Fills in the fields that every stored object has.
    fn complete(&self, target: &Target, value: &mut Value) -> Result<(), Refusal> {
        target.check_type(value)?;
        if !target.spec.namespaced {
            if let Some(metadata) = value["metadata"].as_object_mut() {
                metadata.remove("namespace");
            }
        } else if text(value, "namespace").is_empty() {
            value["metadata"]["namespace"] = json!("default");
        }
        if text(value, "uid").is_empty() {
            let place = Place { kind: target.id, key: ObjectKey::of(value) };
            if let Some(old) = self.store.get(&place) {
                // It remains the same object, and as old as it is.
                let old = &old.value()["metadata"];
                value["metadata"]["uid"] = old["uid"].clone();
                if value["metadata"].get("creationTimestamp").is_none() {
                    value["metadata"]["creationTimestamp"] = old["creationTimestamp"].clone();
                }
            } else {
                value["metadata"]["uid"] = json!(uuid::Uuid::new_v4());
            }
        }
        if let Some(metadata) = value["metadata"].as_object_mut() {
            metadata.entry("creationTimestamp").or_insert_with(|| json!(self.request.time));
            if target.spec.rules.generation {
                metadata.entry("generation").or_insert(json!(1));
            }
        }
        Ok(())
    }

    /// Returns the `managedFields` of an object that has none. Objects of one shape share the value, because it is
    /// costly.
    fn managed_fields(&mut self, target: &Target, value: &Value) -> Option<Arc<SharedFields>> {
        let api_version = target.api_version();
        let mut shape = format!("{}/{api_version}/", target.spec.plural).into_bytes();
        FieldSet::write_shape(value, target.spec.rules.strategic, &mut shape);
        let request = self.request;
        let shared = self.shared.entry(shape).or_insert_with(|| {
            let mut managers = Managers::default();
            managers.update(request.writer("", &api_version), &Value::Null, value, target.spec.rules.strategic);
            managers.into_value().map(|list| Arc::new(SharedFields::new(list)))
        });
        shared.clone()
    }
}

/// Flattens lists into their items, and drops empty documents.
fn flatten(document: Value, objects: &mut Vec<Value>) {
    match document {
        Value::Null => {}
        Value::Object(mut map) if map.get("items").is_some_and(Value::is_array) => {
            if let Some(Value::Array(items)) = map.remove("items") {
                for item in items {
                    flatten(item, objects);
                }
            }
        }
        other => objects.push(other),
    }
}

/// Sets the uids of owner references of which `is_lost` is true to those of the named owners, if these are there too.
/// An owner without a uid gets one.
pub fn link_owners(objects: &mut [Value], is_lost: impl Fn(&str) -> bool) {
    let named = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let is_lost = |owner: &Value| is_lost(owner["uid"].as_str().unwrap_or_default());
    let keys = |object: &Value, owner: &Value| {
        let key = |namespace: &str| (namespace.to_owned(), named(&owner["kind"]), named(&owner["name"]));
        [key(text(object, "namespace")), key("")]
    };
    let mut uids: HashMap<(String, String, String), Option<Value>> = HashMap::new();
    for object in objects.iter() {
        let owners = object["metadata"]["ownerReferences"].as_array().into_iter().flatten();
        uids.extend(owners.filter(|owner| is_lost(owner)).flat_map(|owner| keys(object, owner)).map(|key| (key, None)));
    }
    if uids.is_empty() {
        return;
    }
    for object in objects.iter_mut() {
        let key = (text(object, "namespace").to_owned(), named(&object["kind"]), text(object, "name").to_owned());
        if let Some(uid) = uids.get_mut(&key) {
            if text(object, "uid").is_empty() {
                object["metadata"]["uid"] = json!(uuid::Uuid::new_v4());
            }
            *uid = Some(object["metadata"]["uid"].clone());
        }
    }
    for object in objects {
        let Some(mut owners) = object.pointer_mut("/metadata/ownerReferences").map(Value::take) else { continue };
        for owner in owners.as_array_mut().into_iter().flatten().filter(|owner| is_lost(owner)) {
            let uid = keys(object, owner).iter().find_map(|key| uids.get(key)?.clone());
            if let (Some(uid), Some(owner)) = (uid, owner.as_object_mut()) {
                owner.insert("uid".to_owned(), uid);
            }
        }
        object["metadata"]["ownerReferences"] = owners;
    }
}

/// Returns the kind of an object, and defines it if it is unknown.
fn target_of(store: &mut Store, value: &Value) -> Result<Target, Refusal> {
    let (group, version) = split_api_version(value["apiVersion"].as_str().unwrap_or_default());
    let kind = value["kind"].as_str().unwrap_or_default();
    let known = store.find_kind(group, kind).and_then(|id| store.table(id)).map(|table| (*table.spec).clone());
    let spec = match known {
        Some(spec) if spec.version(version).is_some() => spec,
        Some(spec) => {
            let mut spec = spec.with_version(version);
            let stored = spec.versions.get(spec.storage).map(|version| version.name.clone());
            spec.versions.sort_by_key(|version| std::cmp::Reverse(kind::priority(&version.name)));
            let storage = spec.versions.iter().position(|version| Some(&version.name) == stored.as_ref());
            spec.storage = storage.unwrap_or_default();
            store.define(spec.clone());
            spec
        }
        None => {
            let mut spec = KindSpec::new(group, version, kind);
            spec.namespaced = !text(value, "namespace").is_empty();
            store.define(spec.clone());
            spec
        }
    };
    let resource = Resource::new(group.to_owned(), version.to_owned(), spec.plural);
    Target::find(store, &resource)
}

/// Reads all objects of a file, or of the YAML and JSON files in a folder and its subfolders, in the order of their
/// paths, without what is hidden. The items of lists are separate objects.
pub fn read_manifests(path: &Path) -> anyhow::Result<Vec<Value>> {
    let what = || format!("can't read {}", path.display());
    if !fs::metadata(path).with_context(what)?.is_dir() {
        return read_file(path);
    }
    let mut files = Vec::new();
    find_files(path, &mut files).with_context(what)?;
    files.sort();
    ensure!(
        !files.is_empty(),
        "{} has no manifests: files whose names end in .yaml, .yml or .json are looked for",
        path.display()
    );
    let mut objects = Vec::new();
    for file in files {
        objects.extend(read_file(&file)?);
    }
    Ok(objects)
}

/// Finds the files of manifests in a folder. Links to folders aren't followed: they may lead in circles.
fn find_files(folder: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let path = entry.path();
        if entry.file_name().to_string_lossy().starts_with('.') {
            continue;
        }
        if entry.file_type()?.is_dir() {
            find_files(&path, files)?;
        } else if path.is_file() && has_ending(&path) {
            files.push(path);
        }
    }
    Ok(())
}

fn has_ending(path: &Path) -> bool {
    let is_known = |ending: &OsStr| ["yaml", "yml", "json"].iter().any(|known| ending.eq_ignore_ascii_case(known));
    path.extension().is_some_and(is_known)
}

fn read_file(path: &Path) -> anyhow::Result<Vec<Value>> {
    let text = fs::read_to_string(path).with_context(|| format!("can't read {}", path.display()))?;
    manifests_in(&text).with_context(|| format!("{} is no YAML", path.display()))
}

/// Returns all objects of a text; the items of lists are separate objects. Large dumps are read much faster as JSON.
pub fn manifests_in(text: &str) -> Result<Vec<Value>, serde_yaml::Error> {
    let mut objects = Vec::new();
    if text.trim_start().starts_with('{')
        && let Ok(document) = serde_json::from_str(text)
    {
        flatten(document, &mut objects);
        return Ok(objects);
    }
    for document in serde_yaml::Deserializer::from_str(text) {
        flatten(Value::deserialize(document)?, &mut objects);
    }
    Ok(objects)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controllers::object::Object;

    #[test]
    fn a_folder_gives_the_objects_of_its_files_and_subfolders_by_name() {
        let folder = tempfile::tempdir().unwrap();
        for subfolder in ["deep/er", ".git"] {
            fs::create_dir_all(folder.path().join(subfolder)).unwrap();
        }
        let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
        write("b.yml", "kind: B\nmetadata: {name: b}\n---\n---\nkind: List\nitems: [{kind: C, metadata: {name: c}}]\n");
        write("a.yaml", "kind: A\nmetadata: {name: a}\n");
        write("README.md", "not: [yaml");
        write("deep/er/d.json", "{\"kind\": \"D\", \"metadata\": {\"name\": \"d\"}}");
        write(".git/e.yaml", "kind: E\nmetadata: {name: e}\n");
        let objects = read_manifests(folder.path()).unwrap();
        assert_eq!(objects.iter().map(Object::name).collect::<Vec<_>>(), ["a", "b", "c", "d"]);
    }

    #[test]
    fn an_invalid_manifest_is_an_error_that_names_the_file_and_an_empty_folder_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let error = read_manifests(folder.path()).unwrap_err().to_string();
        assert!(error.contains("has no manifests"), "{error}");
        fs::write(folder.path().join("a.yaml"), "a: [").unwrap();
        let error = read_manifests(folder.path()).unwrap_err().to_string();
        assert!(error.contains("a.yaml is no YAML"), "{error}");
    }
}
