//! A handler of each copy on an informer of the Nodes, which checks the order of events that informers promise.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use k8s_openapi::api::core::v1::Node;
use kube::core::ApiResource;
use parking_lot::Mutex;
use shared_informer::{Event, Factory, Informer, Object, Projection, Query, Registration};

/// The content of a Node in the witness's store: nothing.
pub(crate) struct Nothing;

/// The witness of one copy.
pub(crate) struct Witness {
    account: Arc<Mutex<Account>>,
    informer: Informer<Nothing>,
    _registration: Registration<Nothing>,
}

/// The events that one handler received.
#[derive(Debug, Default)]
struct Account {
    /// The uid and resource version of each object, by its key.
    there: BTreeMap<String, (String, u64)>,
    /// The uids of deleted objects.
    gone: BTreeSet<String>,
    broken: Vec<String>,
}

impl Witness {
    /// Registers the handler.
    pub(crate) fn start(factory: &Factory) -> Self {
        let account = Arc::<Mutex<Account>>::default();
        let projection = Projection::new("witness", |_, _| Ok(Nothing));
        let informer = factory.informer(Query::all(ApiResource::erase::<Node>(&())), projection);
        let reported = Arc::clone(&account);
        let registration = informer.add_handler(move |event: Event<Nothing>| reported.lock().take(&event));
        Self { account, informer, _registration: registration }
    }

    /// Takes the out-of-order events since the last call.
    pub(crate) fn broken(&self) -> Vec<String> {
        std::mem::take(&mut self.account.lock().broken)
    }

    /// Returns the names that the handler has received, and those in the store.
    pub(crate) fn names(&self) -> (Vec<String>, Vec<String>) {
        let reported = self.account.lock().there.keys().cloned().collect();
        let mut held: Vec<_> = self.informer.store().list().iter().map(|object| object.key().to_string()).collect();
        held.sort();
        (reported, held)
    }
}

impl Account {
    fn take(&mut self, event: &Event<Nothing>) {
        let key = event.key().to_string();
        let (uid, version) = identity(event.object());
        let known = self.there.get(&key).cloned();
        match event {
            Event::Added { .. } => {
                if let Some((known, _)) = &known {
                    self.broken.push(format!("{key} ({uid}) was added while {known} is there"));
                }
                if self.gone.contains(&uid) {
                    self.broken.push(format!("{key} ({uid}) was added after it was gone"));
                }
                self.there.insert(key, (uid, version));
            }
            Event::Updated { old, .. } => {
                let old = identity(old);
                if known.as_ref() != Some(&old) {
                    self.broken.push(format!("{key} was updated from {old:?}, and {known:?} was reported before"));
                }
                if old.0 != uid || version < old.1 {
                    self.broken.push(format!("{key} was updated from {old:?} to {:?}", (&uid, version)));
                }
                self.there.insert(key, (uid, version));
            }
            Event::Deleted { .. } => {
                if known.as_ref().is_none_or(|(known, _)| *known != uid) {
                    self.broken.push(format!("{key} ({uid}) was deleted, and {known:?} was reported before"));
                }
                self.there.remove(&key);
                self.gone.insert(uid);
            }
        }
    }
}

fn identity(object: &Object<Nothing>) -> (String, u64) {
    let metadata = &object.metadata;
    (metadata.uid.to_string(), metadata.resource_version.number().unwrap_or_default())
}
