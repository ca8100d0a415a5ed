//! Parts that actors share: their script, clients of any kind, and answers that are as good as success.

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use anyhow::Result;
use capi_autoscaler_provider::connect::Policy;
use k8s_openapi::api::core::v1::Namespace;
use kube::{
    Api,
    api::{ApiResource, DynamicObject, GroupVersionKind, PatchParams, PostParams},
    core::Status,
};
use parking_lot::Mutex;
use serde_json::json;

use crate::{faults::Decision, network::Port};

/// The script of all who act in a world: when the quiet end begins, in which nobody is to ask for anything any more, and
/// which acts are left out. All clones are the same one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Script(Arc<Acts>);

#[derive(Debug, Default)]
struct Acts {
    is_quiet: AtomicBool,
    skipped: BTreeSet<Decision>,
    done: Mutex<Vec<Decision>>,
}

impl Script {
    pub(crate) fn new(skipped: BTreeSet<Decision>) -> Self {
        Self(Arc::new(Acts { skipped, ..Acts::default() }))
    }

    /// From now on it is quiet.
    pub(crate) fn begin_quiet(&self) {
        self.0.is_quiet.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_quiet(&self) -> bool {
        self.0.is_quiet.load(Ordering::Relaxed)
    }

    /// Returns true if an act isn't left out, and writes it down then.
    pub(crate) fn has(&self, what: &'static str, ordinal: u64) -> bool {
        let act = Decision { what, actor: 0, ordinal };
        let has = !self.0.skipped.contains(&act);
        if has {
            self.0.done.lock().push(act);
        }
        has
    }

    /// Takes what was done so far.
    pub(crate) fn take_done(&self) -> Vec<Decision> {
        std::mem::take(&mut self.0.done.lock())
    }
}

/// A client of the objects of a kind, in one namespace or in none.
pub(crate) fn objects(port: &Port, kind: &GroupVersionKind, namespace: Option<&str>) -> Api<DynamicObject> {
    let (client, resource) = (port.client(Policy::WRITES), ApiResource::from_gvk(kind));
    match namespace {
        Some(namespace) => Api::namespaced_with(client, namespace, &resource),
        None => Api::all_with(client, &resource),
    }
}

/// A patch as kubectl sends it.
pub(crate) fn by_kubectl() -> PatchParams {
    PatchParams { field_manager: Some("kubectl".to_owned()), ..PatchParams::default() }
}

/// Makes a namespace, if it isn't there.
pub(crate) async fn make_namespace(namespaces: &Api<Namespace>, name: &str) -> Result<()> {
    let namespace = serde_json::from_value(json!({ "metadata": { "name": name } }))?;
    tolerate(namespaces.create(&PostParams::default(), &namespace).await, Status::is_already_exists)
}

/// Takes a refusal for success if it is as good, such as that of an object which is gone already.
pub(crate) fn tolerate<T>(answer: kube::Result<T>, is_as_good: impl FnOnce(&Status) -> bool) -> Result<()> {
    match answer {
        Err(kube::Error::Api(status)) if is_as_good(&status) => Ok(()),
        answer => Ok(answer.map(drop)?),
    }
}
