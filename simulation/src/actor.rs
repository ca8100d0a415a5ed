//! Parts that actors share: when they are to be quiet, clients of any kind, and answers that are as good as success.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use anyhow::Result;
use capi_autoscaler_provider::connect::Policy;
use k8s_openapi::api::core::v1::Namespace;
use kube::{
    Api,
    api::{ApiResource, DynamicObject, GroupVersionKind, PatchParams, PostParams},
    core::Status,
};
use serde_json::json;

use crate::network::Port;

/// The quiet end of a world, in which nobody is to ask for anything any more: all clones tell of the same one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Quiet(Arc<AtomicBool>);

impl Quiet {
    /// From now on it is quiet.
    pub(crate) fn begin(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_quiet(&self) -> bool {
        self.0.load(Ordering::Relaxed)
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
