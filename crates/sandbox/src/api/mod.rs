//! The API itself: the kinds, the objects, and the rules by which they are read and written. It must not depend on
//! HTTP.

use std::{collections::BTreeMap, sync::Arc};

use parking_lot::RwLock;
use serde_json::Value;
use tokio::sync::watch;

use crate::clock::Clock;

mod collect;
mod core_kinds;
mod history;
mod kind;
mod managed;
mod manifests;
mod object;
mod patch;
mod pods;
mod refusal;
mod scale;
mod selector;
mod store;
#[cfg(test)]
mod tests;
mod write;

pub use collect::{DeleteOptions, Deleted};
pub use history::{ChangeKind, Event};
pub use kind::Resource;
pub use manifests::{link_owners, manifests_in, read_manifests};
pub use patch::PatchKind;
pub use refusal::Refusal;
pub use selector::{FieldSelector, LabelSelector, Selection};
pub use write::Subresource;

pub(crate) use core_kinds::{EVENT_OBJECT, NODE_ADDRESS, NODE_ROLES, NODE_STATUS};
pub(crate) use history::{Change, Forgotten, History, Page, PageQuery, parse_revision, seen, too_old};
pub(crate) use kind::{Column, KindSpec, VersionSpec, priority};
pub(crate) use object::{Object, text};
pub(crate) use scale::{ScaleWrite, at};
pub(crate) use store::Target;

use object::ObjectKey;
use store::{Place, Store};
use write::Request;

/// The settings of an API.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// The number of changes of each kind that are kept for watches; a request for older ones is refused as expired.
    pub history: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self { history: 10_000 }
    }
}

/// A Kubernetes API in memory. Clones are cheap and share the same API.
#[derive(Debug, Clone)]
pub struct Api {
    shared: Arc<Shared>,
    manager: Arc<str>,
    dry_run: bool,
    /// True to include versions that aren't served.
    unserved: bool,
}

#[derive(Debug)]
struct Shared {
    clock: Clock,
    store: RwLock<Store>,
    revision: watch::Sender<u64>,
}

impl Api {
    /// Creates an API with the core kinds and the namespaces of every cluster.
    pub fn new(clock: Clock) -> Self {
        Self::with_settings(clock, Settings::default())
    }

    /// Creates an API with other settings.
    pub fn with_settings(clock: Clock, settings: Settings) -> Self {
        let mut store = Store::new(settings.history);
        for kind in core_kinds::core_kinds() {
            store.define(kind);
        }
        let revision = watch::Sender::new(store.revision());
        let shared = Shared { clock, store: RwLock::new(store), revision };
        let api = Self { shared: Arc::new(shared), manager: Arc::from("sandbox"), dry_run: false, unserved: false };
        for namespace in ["default", "kube-node-lease", "kube-public", "kube-system"] {
            api.ensure_namespace(namespace);
        }
        api
    }

    /// Returns the same API with another field manager for its writes.
    pub fn as_manager(&self, manager: &str) -> Self {
        Self { manager: Arc::from(manager), ..self.clone() }
    }

    /// Returns the same API with writes that are checked and answered but not stored.
    pub fn dry_run(&self) -> Self {
        Self { dry_run: true, ..self.clone() }
    }

    /// Returns the same API with all versions of a definition, served or not, for users that must not depend on the
    /// versions currently served.
    pub fn with_unserved(&self) -> Self {
        Self { unserved: true, ..self.clone() }
    }

    /// Returns the clock that sets the times of objects.
    pub fn clock(&self) -> &Clock {
        &self.shared.clock
    }

    /// Defines the kinds of a workload cluster that Cluster Autoscaler and kube-scheduler list besides the core kinds.
    pub fn define_workload_kinds(&self) {
        let mut store = self.shared.store.write();
        for kind in core_kinds::workload_kinds() {
            store.define(kind);
        }
    }

    #[cfg(test)]
    pub(crate) fn define(&self, kind: KindSpec) {
        self.shared.store.write().define(kind);
    }

    /// Returns all kinds, by group and plural.
    pub(crate) fn kinds(&self) -> Vec<Arc<KindSpec>> {
        let store = self.shared.store.read();
        let kinds: BTreeMap<_, _> = store
            .tables()
            .map(|(_, table)| ((table.spec.group.clone(), table.spec.plural.clone()), Arc::clone(&table.spec)))
            .collect();
        kinds.into_values().collect()
    }

    /// Returns the resource of a kind, by the `apiVersion` and `kind` of its objects.
    pub(crate) fn resource_of(&self, api_version: &str, kind: &str) -> Option<Resource> {
        let (group, version) = kind::split_api_version(api_version);
        let store = self.shared.store.read();
        let spec = Arc::clone(&store.table(store.find_kind(group, kind)?)?.spec);
        spec.versions.iter().find(|known| known.name == version && (known.served || self.unserved))?;
        Some(Resource::new(group.to_owned(), version.to_owned(), spec.plural.clone()))
    }

    /// Returns the revision of the latest change.
    pub fn revision(&self) -> u64 {
        *self.shared.revision.borrow()
    }

    /// Returns a receiver of the revision of the latest change.
    pub fn subscribe(&self) -> watch::Receiver<u64> {
        self.shared.revision.subscribe()
    }

    /// Drops all changes up to now: watches and lists that ask for an older state are answered as expired.
    pub fn forget_history(&self) {
        self.shared.store.read().forget_history();
    }

    /// Drops all changes of each kind but the last `count`, which large objects would otherwise fill the memory with.
    pub fn keep_history(&self, count: usize) {
        self.shared.store.read().keep_history(count);
    }

    /// Returns the number of watches of a kind that are in progress.
    pub fn watches(&self, resource: &Resource) -> Result<usize, Refusal> {
        Ok(self.history(resource)?.1.subscribers())
    }

    /// Returns one object.
    pub fn get(&self, resource: &Resource, namespace: &str, name: &str) -> Result<Arc<Value>, Refusal> {
        let (target, object) = self.object(resource, namespace, name)?;
        Ok(object.under(&target.api_version()))
    }

    /// Returns all objects of a selection, by namespace and name.
    pub fn list(&self, resource: &Resource, selection: &Selection) -> Result<Vec<Arc<Value>>, Refusal> {
        let page = self.page(resource, &PageQuery::all(selection.clone()))?;
        let api_version = page.target.api_version();
        Ok(page.objects.iter().map(|object| object.under(&api_version)).collect())
    }

    /// Returns all objects with an owner of this uid, each with its resource in the version in which it is stored.
    pub(crate) fn dependents(&self, uid: &str) -> Vec<(Resource, Arc<Value>)> {
        let store = self.shared.store.read();
        let places = store.dependents(uid);
        places
            .filter_map(|place| {
                let resource = store.table(place.kind)?.spec.storage_resource();
                Some((resource, Arc::clone(store.get(place)?.value())))
            })
            .collect()
    }

    /// Creates an object in the namespace that it names.
    pub fn create(&self, resource: &Resource, value: Value) -> Result<Arc<Value>, Refusal> {
        self.create_in(resource, "", value)
    }

    /// Creates an object in `namespace`.
    pub fn create_in(&self, resource: &Resource, namespace: &str, value: Value) -> Result<Arc<Value>, Refusal> {
        self.write(resource, |store, target, request| {
            let created = write::create(store, target, namespace, value, request)?;
            collect::settle(store, &request.time);
            Ok(created)
        })
    }

    /// Replaces an object except for its status.
    pub fn update(&self, resource: &Resource, value: Value) -> Result<Arc<Value>, Refusal> {
        let (namespace, name) = address(&value);
        self.update_at(resource, &namespace, &name, Subresource::Main, value)
    }

    pub(crate) fn update_status(&self, resource: &Resource, value: Value) -> Result<Arc<Value>, Refusal> {
        let (namespace, name) = address(&value);
        self.update_at(resource, &namespace, &name, Subresource::Status, value)
    }

    /// Replaces the part of an object that `subresource` reaches. Write a Scale with [`Api::patch`] or over HTTP.
    pub(crate) fn update_at(
        &self,
        resource: &Resource,
        namespace: &str,
        name: &str,
        subresource: Subresource,
        value: Value,
    ) -> Result<Arc<Value>, Refusal> {
        if subresource == Subresource::Scale {
            return self.write_scale(resource, namespace, name, ScaleWrite::Put(value)).map(Arc::new);
        }
        self.write(resource, |store, target, request| {
            check_subresource(target, subresource)?;
            let place = Place { kind: target.id, key: ObjectKey::new(namespace, name) };
            write::update(store, target, &place, subresource, value, request)
        })
    }

    /// Patches the part of an object that `subresource` reaches. Returns the Scale if that was patched.
    pub fn patch(
        &self,
        resource: &Resource,
        namespace: &str,
        name: &str,
        kind: PatchKind,
        subresource: Subresource,
        body: Value,
    ) -> Result<Arc<Value>, Refusal> {
        if subresource == Subresource::Scale {
            return self.write_scale(resource, namespace, name, ScaleWrite::Patch(kind, body)).map(Arc::new);
        }
        self.write(resource, |store, target, request| {
            check_subresource(target, subresource)?;
            let place = Place { kind: target.id, key: ObjectKey::new(namespace, name) };
            patch::patch(store, target, &place, kind, subresource, &body, request)
        })
    }

    /// Deletes an object, or marks it as being deleted if finalizers or contents block it.
    pub fn delete(
        &self,
        resource: &Resource,
        namespace: &str,
        name: &str,
        options: &DeleteOptions,
    ) -> Result<Deleted, Refusal> {
        let options = DeleteOptions { dry_run: options.dry_run || self.dry_run, ..options.clone() };
        self.locked(resource, |store, target, request| {
            let place = Place { kind: target.id, key: ObjectKey::new(namespace, name) };
            let under = |object: &Arc<Value>| object::under(object, &target.api_version());
            Ok(match collect::delete(store, target, &place, &options, request)? {
                Deleted::Gone(object) => Deleted::Gone(under(&object)),
                Deleted::Waiting(object) => Deleted::Waiting(under(&object)),
            })
        })
    }

    pub(crate) fn scale(&self, resource: &Resource, namespace: &str, name: &str) -> Result<Value, Refusal> {
        let (target, object) = self.object(resource, namespace, name)?;
        scale::read(&target, &object)
    }

    fn write_scale(
        &self,
        resource: &Resource,
        namespace: &str,
        name: &str,
        scale: ScaleWrite,
    ) -> Result<Value, Refusal> {
        self.locked(resource, |store, target, request| {
            let place = Place { kind: target.id, key: ObjectKey::new(namespace, name) };
            scale::write(store, target, &place, scale, request)
        })
    }

    /// Returns the stored state of an object, and its kind in the requested version.
    pub(crate) fn object(
        &self,
        resource: &Resource,
        namespace: &str,
        name: &str,
    ) -> Result<(Target, Arc<Object>), Refusal> {
        let store = self.shared.store.read();
        let target = self.find(&store, resource)?;
        let place = Place { kind: target.id, key: ObjectKey::new(namespace, name) };
        let object = store.get(&place).cloned().ok_or_else(|| Refusal::not_found(&target.spec, name))?;
        drop(store);
        Ok((target, object))
    }

    pub(crate) fn target(&self, resource: &Resource) -> Result<Target, Refusal> {
        self.find(&self.shared.store.read(), resource)
    }

    /// Finds the kind of a resource, including unserved versions if this API has them.
    fn find(&self, store: &Store, resource: &Resource) -> Result<Target, Refusal> {
        if self.unserved { Target::defined(store, resource) } else { Target::find(store, resource) }
    }

    fn write(
        &self,
        resource: &Resource,
        write: impl FnOnce(&mut Store, &Target, &Request) -> Result<Arc<Value>, Refusal>,
    ) -> Result<Arc<Value>, Refusal> {
        self.locked(resource, |store, target, request| {
            Ok(object::under(&write(store, target, request)?, &target.api_version()))
        })
    }

    fn locked<T>(
        &self,
        resource: &Resource,
        write: impl FnOnce(&mut Store, &Target, &Request) -> Result<T, Refusal>,
    ) -> Result<T, Refusal> {
        let request = self.request();
        let mut store = self.shared.store.write();
        let target = self.find(&store, resource)?;
        let answer = write(&mut store, &target, &request);
        self.publish(store);
        answer
    }

    fn request(&self) -> Request {
        Request { manager: self.manager.to_string(), time: self.time(), dry_run: self.dry_run }
    }

    /// Returns the time in the format of objects, in whole seconds.
    pub(crate) fn time(&self) -> String {
        self.shared.clock.now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
    }

    /// Ends a write and notifies all receivers of the revision.
    fn publish(&self, store: parking_lot::RwLockWriteGuard<'_, Store>) {
        let revision = store.revision();
        // This runs under the lock, so that the revision never goes back.
        self.shared.revision.send_if_modified(|shown| std::mem::replace(shown, revision) != revision);
        drop(store);
    }

    fn ensure_namespace(&self, name: &str) {
        let namespace = serde_json::json!({"metadata": {"name": name}});
        // A valid name always succeeds, unless the namespace exists already.
        let _ = self.create(&Resource::core("namespaces"), namespace);
    }
}

/// Refuses a subresource that a kind doesn't have.
pub(crate) fn check_subresource(target: &Target, subresource: Subresource) -> Result<(), Refusal> {
    let there = match subresource {
        Subresource::Main => true,
        Subresource::Status => target.version.status,
        Subresource::Scale => target.version.scale.is_some(),
    };
    if there { Ok(()) } else { Err(Refusal::no_such_resource()) }
}

fn address(value: &Value) -> (String, String) {
    (text(value, "namespace").to_owned(), text(value, "name").to_owned())
}
