//! Helpers that actors share: their script, clients of any kind, and the answers that count as success.

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use anyhow::Result;
use connect::Policy;
use k8s_openapi::api::core::v1::Namespace;
use kube::{
    Api,
    api::{ApiResource, DynamicObject, GroupVersionKind, PatchParams, PostParams},
    core::Status,
};
use parking_lot::Mutex;
use serde_json::json;

use crate::{faults::Decision, network::Port};

/// The script of all actors of a world: the start of the quiet end, in which no actor may request anything, and the
/// acts that are skipped. Clones share one state.
#[derive(Clone, Debug, Default)]
pub(crate) struct Script {
    acts: Arc<Acts>,
    /// The number of the Cluster on which they act.
    actor: usize,
}

#[derive(Debug, Default)]
struct Acts {
    is_quiet: AtomicBool,
    skipped: BTreeSet<Decision>,
    done: Mutex<Vec<Decision>>,
}

impl Script {
    pub(crate) fn new(skipped: BTreeSet<Decision>) -> Self {
        Self { acts: Arc::new(Acts { skipped, ..Acts::default() }), actor: 0 }
    }

    pub(crate) fn of_cluster(&self, actor: usize) -> Self {
        Self { acts: Arc::clone(&self.acts), actor }
    }

    pub(crate) fn begin_quiet(&self) {
        self.acts.is_quiet.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_quiet(&self) -> bool {
        self.acts.is_quiet.load(Ordering::Relaxed)
    }

    /// Returns true if an act isn't skipped, and records it then.
    pub(crate) fn has(&self, what: &'static str, ordinal: u64) -> bool {
        let act = Decision { what, actor: self.actor, ordinal };
        let has = !self.acts.skipped.contains(&act);
        if has {
            self.acts.done.lock().push(act);
        }
        has
    }

    /// Takes the acts that were recorded so far.
    pub(crate) fn take_done(&self) -> Vec<Decision> {
        std::mem::take(&mut self.acts.done.lock())
    }
}

pub(crate) fn objects(port: &Port, kind: &GroupVersionKind, namespace: Option<&str>) -> Api<DynamicObject> {
    let (client, resource) = (port.client(Policy::WRITES), ApiResource::from_gvk(kind));
    match namespace {
        Some(namespace) => Api::namespaced_with(client, namespace, &resource),
        None => Api::all_with(client, &resource),
    }
}

pub(crate) fn by_kubectl() -> PatchParams {
    PatchParams { field_manager: Some("kubectl".to_owned()), ..PatchParams::default() }
}

pub(crate) async fn make_namespace(namespaces: &Api<Namespace>, name: &str) -> Result<()> {
    let namespace = serde_json::from_value(json!({ "metadata": { "name": name } }))?;
    tolerate(namespaces.create(&PostParams::default(), &namespace).await, Status::is_already_exists)
}

/// Counts a refusal as success if it is equivalent, such as that of deleting an object that is already gone.
pub(crate) fn tolerate<T>(answer: kube::Result<T>, is_as_good: impl FnOnce(&Status) -> bool) -> Result<()> {
    match answer {
        Err(kube::Error::Api(status)) if is_as_good(&status) => Ok(()),
        answer => Ok(answer.map(drop)?),
    }
}
