//! Converts informer events to changes, and passes them to an outlet. There is one handler per outlet and resource: a
//! slow outlet receives the changes of each object merged, and delays no other.

use std::{collections::HashMap, sync::Arc};

use jiff::Timestamp;
use shared_informer::{Event, Handler, Object, ObjectKey};

use crate::{
    changes::{Action, Change, Identity, Kind, Snapshot},
    notify::Notifier,
};

/// Objects by key, as they were reported before the resource was served in another version.
pub(super) type Known = HashMap<ObjectKey, Arc<Object<Snapshot>>>;

/// The program's own destination of changes.
#[derive(Clone)]
pub struct Output {
    /// Takes a change. It may block while its reader is behind: then the informers merge further changes.
    pub report: Arc<dyn Fn(&Change) + Send + Sync>,
    /// True if objects that exist at the start are reported too.
    pub initial: bool,
}

/// The destination of changes.
#[derive(Clone)]
pub(super) enum Outlet {
    /// The program's own.
    Output(Output),
    /// Webhooks. They never receive the objects that exist at the start.
    Notifier(Arc<Notifier>),
}

/// Passes the changes of one resource to one outlet.
pub(super) struct Reporter {
    pub(super) cluster: &'static str,
    pub(super) kind: Arc<Kind>,
    pub(super) outlet: Outlet,
    /// True if the resource was installed during the watch, so that all of its objects are new.
    pub(super) appeared: bool,
    pub(super) known: Known,
}

impl Reporter {
    fn identity(&self, object: &Object<Snapshot>) -> Identity {
        let (key, metadata) = (object.key(), &object.metadata);
        Identity {
            time: Timestamp::now(),
            cluster: self.cluster,
            kind: Arc::clone(&self.kind),
            namespace: key.namespace.to_string(),
            name: key.name.to_string(),
            uid: metadata.uid.to_string(),
            resource_version: metadata.resource_version.to_string(),
        }
    }

    fn added(&self, object: &Object<Snapshot>, initial: bool) -> Change {
        let identity = self.identity(object);
        match &object.content {
            Ok(new) => Change::added(identity, Arc::clone(new), initial),
            Err(error) => Change::unreadable(identity, Action::Added { initial }, error.to_string()),
        }
    }

    fn modified(&self, old: &Object<Snapshot>, new: &Object<Snapshot>) -> Option<Change> {
        let identity = self.identity(new);
        match (&old.content, &new.content) {
            (Ok(old), Ok(new)) => Change::modified(identity, Arc::clone(old), Arc::clone(new)),
            (Ok(_) | Err(_), Err(error)) => Some(Change::unreadable(identity, Action::Modified, error.to_string())),
            (Err(_), Ok(_)) => {
                Some(Change::unreadable(identity, Action::Modified, "its previous state couldn't be read".into()))
            }
        }
    }

    fn deleted(&self, last: &Object<Snapshot>, found_by_relist: bool) -> Change {
        Change::deleted(self.identity(last), last.decoded().cloned(), found_by_relist)
    }

    fn report(&self, change: &Change) {
        match &self.outlet {
            Outlet::Output(Output { initial: false, .. }) if change.action == (Action::Added { initial: true }) => {}
            Outlet::Output(output) => (output.report)(change),
            Outlet::Notifier(notifier) => notifier.offer(change),
        }
    }
}

impl Handler<Snapshot> for Reporter {
    fn handle(&mut self, event: Event<Snapshot>) {
        match event {
            Event::Added { object, initial } => {
                match self.known.remove(&object.key()) {
                    // It was already reported, in the version served before.
                    Some(known) if known.metadata.uid == object.metadata.uid => return,
                    Some(known) => self.report(&self.deleted(&known, true)),
                    None => {}
                }
                self.report(&self.added(&object, initial && !self.appeared));
            }
            Event::Updated { old, new } => {
                if let Some(change) = self.modified(&old, &new) {
                    self.report(&change);
                }
            }
            Event::Deleted { last, found_by_relist } => self.report(&self.deleted(&last, found_by_relist)),
        }
    }

    fn synced(&mut self) {
        for (_, gone) in std::mem::take(&mut self.known) {
            self.report(&self.deleted(&gone, true));
        }
    }
}
